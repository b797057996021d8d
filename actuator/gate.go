package actuator

import "github.com/laxity/laxity/actuator/plan"

// Gate is what an Enforcer offers besides that can stop tasks where they launch
// kernels. The plan decides who may compute and who is next in line; how the
// others are kept from it is the enforcer's: Pause closes the gate for a
// container, which goes on up to its next launch; Unpause opens it.
type Gate interface {
	// Phases says what the containers that the gate sees do on the GPU, by id. A
	// container that is absent counts as computing all the time. The channel is
	// closed by the next change, which makes a new plan at once.
	Phases() (phases map[string]plan.Phase, changed <-chan struct{})
	// Line is told after each plan that changed something who may compute on each
	// arbitrated GPU, in the order of admission, and who waits, the next one first.
	// It MUST NOT block: whoever is next can be prepared, so that letting go never
	// waits for the container engine.
	Line(admitted, waiting map[string][]string)
}
