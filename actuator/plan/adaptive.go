package plan

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Adaptive lets containers run together as long as that costs them nothing, and
// one at a time where they would only slow each other down:
//
//   - those of which it was learned how much of the GPU they use run together
//     while the sum fits (paper P2, Fig. 4);
//   - those that leave the GPU idle for most of their time are never held: a pause would keep them from their host phases too, which is
//     more than it could win (paper P3's open problem of the small tasks);
//   - of the others nobody is stopped before the GPU is seen to be full, and then
//     all but the first are; they are released again one after another, each time
//     with a fresh sample, while half of the GPU is idle;
//   - what is shorter than holding it would cost is never held.
//
// No container is released past one that waits, except the brief ones: a gap in the use of the GPU
// is no reason to reverse the order.
type Adaptive struct{}

// Name implements Rule.
func (Adaptive) Name() string { return "adaptive" }

const (
	// brief is the longest task (by history) that is never held: about what it costs to see a task,
	// pause it and unpause it.
	brief = 250 * time.Millisecond
	// fits is the greatest sum of what containers use alone at which they do not slow each other
	// down.
	fits = 1.0
	// busy is the utilisation above which unmet demand cannot be seen.
	busy = 0.9
	// half leaves room for a container of unknown use.
	half = 0.5
	// mostly is the mean use below which an immediate pause costs more than it gains: N tasks one
	// after another end at (N+1)/2 × their length on average; N at once end after N × (1 + the loss
	// by switching) × the part that computes.
	mostly = 0.5
	// crowded is the share of the memory above which no container is released.
	crowded = memoryFull
)

// Open implements Rule.
func (Adaptive) Open(g GPU) Admission {
	return &adaptiveAdmission{gpu: g, known: true}
}

type adaptiveAdmission struct {
	gpu     GPU
	sum     float64 // of what those admitted use, where known
	known   bool    // whether it is known for all that were admitted
	taken   string  // the first one admitted
	waiting string  // the first one that waits
	added   string  // the container of unknown use that this plan released
}

func (g *adaptiveAdmission) May(c Container) (bool, string) {
	admitted := slices.Contains(g.gpu.Admitted, c.ID) && c.Standing == Runs
	demand, known := c.Demand[g.gpu.UUID]
	switch {
	case g.taken == "":
		return true, "first in order"
	case g.free(c):
		return true, "by its history holding it would cost more than it wins"
	case g.waiting != "":
		return false, "waits behind " + g.waiting
	case g.gpu.Memory > crowded && !admitted:
		return false, fmt.Sprintf("memory use is %.1f %%", 100*g.gpu.Memory)
	case g.known && known && g.sum+demand > fits:
		return false, fmt.Sprintf("waits for %s: together they want %.0f %% of the GPU", g.taken, 100*(g.sum+demand))
	case g.known && known:
		return true, fmt.Sprintf("together they want %.0f %% of the GPU", 100*(g.sum+demand))
	}
	return g.unknown(c)
}

// free reports whether the container must not be held at all.
func (g *adaptiveAdmission) free(c Container) bool {
	mean, known := c.Mean[g.gpu.UUID]
	return c.brief(brief) || known && mean < mostly
}

// unknown decides while it is not learned yet how much the container wants.
func (g *adaptiveAdmission) unknown(c Container) (bool, string) {
	u := g.gpu.Utilization
	use := fmt.Sprintf("utilisation is %.0f %%", 100*u)
	switch {
	case math.IsNaN(u):
		return false, fmt.Sprintf("waits for %s: the GPU does not say how much it is used", g.taken)
	case u >= busy:
		return false, fmt.Sprintf("waits for %s: %s", g.taken, use)
	case c.Standing == Runs:
		return true, use
	case u > half:
		return false, fmt.Sprintf("waits for %s: %s and nobody knows how much it wants", g.taken, use)
	case g.added != "":
		return false, "waits behind " + g.added + ": one after another"
	case !g.gpu.Fresh:
		return false, "waits for a sample that shows the effect of the last action"
	default:
		return true, use
	}
}

func (g *adaptiveAdmission) Take(c Container) {
	if g.free(c) {
		return // it takes no turn
	}
	if g.taken == "" {
		g.taken = c.Name
	}
	demand, known := c.Demand[g.gpu.UUID]
	g.sum += demand
	g.known = g.known && known
	if g.added == "" && !known && c.Standing == Ours {
		g.added = c.Name
	}
}

func (g *adaptiveAdmission) Pass(c Container) {
	if g.waiting == "" {
		g.waiting = c.Name
	}
}
