package actuator

import (
	"context"

	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/plan"
)

var _ Gate = (*gate.Enforcer)(nil)

// Gate is what an Enforcer offers besides that can stop tasks where they launch
// kernels. The plan decides who may compute and who is next in line; how the
// others are kept from it is the enforcer's: Pause closes the gate for a
// container, which goes on up to its next launch, or for the cause plan.Start up to
// its context; Unpause opens it.
type Gate interface {
	// Phases says what the containers that the gate sees do on the GPU, by id. A
	// container that is absent counts as computing all the time. The channel is
	// closed by the next change, which makes a new plan at once.
	Phases() (phases map[string]plan.Phase, changed <-chan struct{})
	// Cover is told before each plan which containers the policy may hold at all.
	// A gate that does not hear of it for a while opens by itself.
	Cover(containers []gate.Target)
	// Line is told after each plan who may compute on each arbitrated GPU, in the
	// order of admission, who waits, the next one first, and which containers are
	// kept back from creating a context, with the reason. It MUST NOT block:
	// whoever is next can be prepared, so that letting go never waits for the
	// container engine.
	Line(admitted, waiting map[string][]string, back map[string]string)
	// ToLaunch undoes a pause of the whole container and leaves the gate as it is:
	// the container goes on up to its next launch. It is otherwise as Unpause.
	ToLaunch(ctx context.Context, id string) error
	// Drop is told of a hold that ended without an Unpause. What is not held MUST NOT
	// be paused for waiting: nobody would undo that.
	Drop(id string)
}

// opener is an Enforcer that must be opened before it works, once nobody else
// uses the same state folder, and closed afterwards.
type opener interface {
	Open(ctx context.Context) error
	Close() error
}

// cover returns the containers that may be held while a GPU is arbitrated; those
// that use no GPU yet are among them. Launches of servers are not stopped.
func (l *loop) cover(in plan.Input) []gate.Target {
	var targets []gate.Target
	for i, c := range in.Containers {
		if c.Controllable() && !c.Server && l.anyArbitrated(in) {
			targets = append(targets, gate.Target{ID: c.ID, PID: l.snap.Containers[i].PID})
		}
	}
	return targets
}

func (l *loop) anyArbitrated(in plan.Input) bool {
	for _, g := range in.GPUs {
		if g.Arbitrated {
			return true
		}
	}
	return false
}
