package plan

import (
	"fmt"

	"github.com/laxity/laxity/actuator/policy"
)

// reserve says of those that would compute who must let another one go first that
// has not come that far: a launched kernel cannot be stopped, so somebody
// with a later deadline who is a moment earlier could make it miss. The GPU may
// be idle for that moment; it is bounded.
func (p *planner) reserve(queue []entry) map[string]string {
	out := map[string]string{}
	if p.in.Preemption == nil || p.in.Preemption.Never {
		return out
	}
	honoured := map[string]bool{} // whoever one lets go first, all behind it do
	for i, w := range queue {
		if w.Phase.passive() || w.incumbent {
			continue
		}
		for _, e := range queue[:i] { // those before it in order
			if e.Phase == Preparing && p.meet(e, w) && p.soon(e) && (honoured[e.ID] || p.blocks(w, e)) {
				honoured[e.ID] = true
				out[w.ID] = fmt.Sprintf("lets %s go first, which is about to launch and would miss its deadline behind it", e.Name)
				break
			}
		}
	}
	return out
}

// soon reports whether the launch of e can be expected shortly.
func (p *planner) soon(e entry) bool {
	return e.first.Urgent() && e.first.Ran(p.in.Now) <= p.in.Preemption.Reserve
}

// blocks reports whether e, which could still meet its deadline, misses it if w
// goes first and is not stopped. That w may miss its own by going second is no
// reason: the order says whose deadline counts more, and an estimate of the one
// behind the other is too high, for e's copy out goes on beside w's kernels.
func (p *planner) blocks(w, e entry) bool {
	left := e.first.Deadline.Sub(p.in.Now)
	switch {
	case left < 0, e.first.Known && left < e.first.Least: // too late either way
		return false
	case w.first.Known && e.first.Known && w.first.Remaining <= policy.Laxity(e.first, p.in.Now):
		return false
	default:
		return true
	}
}
