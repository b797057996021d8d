package plan

import (
	"fmt"
	"slices"
)

// Rule says how many containers run at once on a GPU.
type Rule interface {
	Name() string
	// Open begins the decision about one GPU.
	Open(g GPU) Admission
}

// Admission decides about one GPU. It is asked about the containers in their order. After each May
// exactly one of Take and Pass follows; Pass without May where another GPU of the container has
// refused already.
type Admission interface {
	// May says whether the container may run beside those taken so far, and why
	// or why not. It MUST say yes as long as none is taken.
	May(c Container) (bool, string)
	Take(c Container)
	Pass(c Container)
}

// full is a utilisation that counts as 100 %: the driver reports whole percents.
const full = 0.995

// One lets one container run at a time: the first in order.
type One struct{}

// Name implements Rule.
func (One) Name() string { return "one" }

// Open implements Rule.
func (One) Open(GPU) Admission { return &oneAdmission{} }

type oneAdmission struct{ taken string }

func (g *oneAdmission) May(Container) (bool, string) {
	if g.taken == "" {
		return true, "first in order"
	}
	return false, "waits for " + g.taken
}

func (g *oneAdmission) Take(c Container) { g.taken = c.Name }
func (g *oneAdmission) Pass(Container)   {}

// P3 is Algorithm 2 of paper P3:
//
//   - nothing admitted yet: the first container is kept, the others are paused at
//     once, because nobody knows how much each will use;
//   - below 100 % utilisation they are released one after another, in order;
//   - at 100 % every container behind the first is paused (again);
//   - above 95 % of the memory the last one admitted is paused, and none is released;
//   - the first in order always runs, so when a task is finished the next one goes.
//
// "One after another" needs a sample of the utilisation that shows the effect of
// the last step (GPU.Fresh); the paper's monitor had no such lag.
type P3 struct{}

// Name implements Rule.
func (P3) Name() string { return "p3" }

// memoryFull is the share of the memory above which P3 takes a container out.
const memoryFull = 0.95

// Open implements Rule.
func (P3) Open(g GPU) Admission { return &p3Admission{gpu: g} }

type p3Admission struct {
	gpu     GPU
	taken   string // the first one admitted
	waiting string // the first one that waits
	added   string // the one released by this plan
}

func (g *p3Admission) May(c Container) (bool, string) {
	if g.taken == "" {
		return true, "first in order"
	}
	admitted := slices.Contains(g.gpu.Admitted, c.ID)
	crowded := g.gpu.Memory > memoryFull
	switch {
	case len(g.gpu.Admitted) == 0:
		return false, fmt.Sprintf("waits for %s: nobody knows yet how much each will use", g.taken)
	case !(g.gpu.Utilization < full): // written so that NaN (unknown) counts as full
		return false, fmt.Sprintf("waits for %s: utilisation is %.0f %%", g.taken, 100*g.gpu.Utilization)
	case admitted && crowded && g.gpu.Fresh && g.gpu.Admitted[len(g.gpu.Admitted)-1] == c.ID:
		return false, fmt.Sprintf("was admitted last and memory use is %.1f %%", 100*g.gpu.Memory)
	case admitted:
		return true, fmt.Sprintf("was admitted and utilisation is %.0f %%", 100*g.gpu.Utilization)
	case g.waiting != "":
		return false, "waits behind " + g.waiting
	case crowded:
		return false, fmt.Sprintf("memory use is %.1f %%", 100*g.gpu.Memory)
	case c.Standing == Runs:
		// It has just come. Below 100 % the paper pauses nobody.
		return true, fmt.Sprintf("utilisation is %.0f %%", 100*g.gpu.Utilization)
	case g.added != "":
		return false, "waits behind " + g.added + ": one after another"
	case !g.gpu.Fresh:
		return false, "waits for a sample that shows the effect of the last action"
	default:
		return true, fmt.Sprintf("next in order and utilisation is %.0f %%", 100*g.gpu.Utilization)
	}
}

func (g *p3Admission) Take(c Container) {
	if g.taken == "" {
		g.taken = c.Name
	}
	if g.added == "" && c.Standing == Ours {
		g.added = c.Name
	}
}

func (g *p3Admission) Pass(c Container) {
	if g.waiting == "" {
		g.waiting = c.Name
	}
}
