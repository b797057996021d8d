package ladder

import (
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// wait is how a process of the queue has fared since it came behind others, or before them, in a place
// in which nobody is promised a deadline.
type wait struct {
	came, at time.Time // of the first plan with it, and the one before
	// behind: at the plan before it was behind others of its place; else it headed them. leads: it was the first of all,
	// with the GPU to itself as far as they let it.
	behind, leads       bool
	waited, headed, led time.Duration // how long so
	// needs is what it had left when it came, if known: by the clock it would become less while it waits.
	needs time.Duration
	known bool
	place policy.Place
	// equals is the most others of its place at a time: those that have ended would have shared, too.
	equals int
	over   bool // it has waited for long enough
}

// wait notes which processes are behind others of their place, and for how long they have to wait.
func (p *planner) wait() {
	all := map[string]wait{}
	for first := 0; first < len(p.queue); {
		end := first + 1
		for end < len(p.queue) && p.queue[end].place == p.queue[first].place {
			end++
		}
		if p.queue[first].place >= policy.Behind {
			p.waitIn(p.queue[first:end], all)
		}
		first = end
	}
	p.state.waits = all
}

// waitIn does so for the processes of one place, in order.
func (p *planner) waitIn(equals []member, all map[string]wait) {
	waits := make([]wait, len(equals))
	for i, m := range equals {
		waits[i] = p.fared(m, i > 0, len(equals)-1)
	}
	most := p.longest(waits)
	alone := len(p.tops) == 0 && len(p.foreign) == 0
	for i := range equals {
		if w := &waits[i]; i > 0 && !w.over {
			left := p.patience(*w, most) - w.waited
			if w.over = left <= 0; !w.over {
				p.wake(p.in.Now.Add(left))
			}
		}
		equals[i].beside = i > 0 && waits[i].over
		alone = alone && !equals[i].beside
	}
	waits[0].leads = alone && equals[0].ID == p.queue[0].ID
	for i, m := range equals {
		all[m.ID] = waits[i]
	}
}

// fared adds the time since the plan before.
func (p *planner) fared(m member, behind bool, others int) wait {
	w, ok := p.state.waits[m.ID]
	if !ok {
		w.came, w.at = p.in.Now, p.in.Now
	}
	passed := max(0, p.in.Now.Sub(w.at))
	if w.behind {
		w.waited += passed
	} else {
		w.headed += passed
	}
	if w.leads {
		w.led += passed
	}
	if w.place != m.place {
		w.place, w.equals, w.headed = m.place, 0, 0
	}
	if m.Job.Known && !w.known {
		w.known, w.needs = true, m.Job.Remaining+p.in.Now.Sub(w.came)
	}
	w.at, w.behind, w.leads, w.equals = p.in.Now, behind, false, max(w.equals, others)
	return w
}

// expected reports whether all before the last one are expected to end within Limits.MaxHold.
func (p *planner) expected(waits []wait) bool {
	var left time.Duration
	for i, w := range waits {
		switch {
		case !w.known || i == 0 && !w.ends():
			return false
		case i == 0:
			left += max(0, w.needs-w.led)
		case i < len(waits)-1:
			left += w.needs
		}
	}
	return left <= p.in.Limits.maxHold()
}

// shortest is the least time that a process waits before it computes beside others.
const shortest = 2 * time.Second

// longest is how long any of them waits for the first at the most: for as long as is allowed if all are expected to end, else for
// policy.DefaultPatience, so that nobody overtakes another one by it; and no longer than the shortest time for a first one
// that has come first for so long already, and is not known to end in so long again.
func (p *planner) longest(waits []wait) time.Duration {
	_, places := p.in.Order.(policy.Placer)
	first := waits[0]
	soon := first.ends() && first.needs-first.led <= policy.DefaultPatience
	switch {
	case p.expected(waits):
		return max(policy.DefaultPatience, p.in.Limits.maxHold())
	case places && !soon && first.headed >= policy.DefaultPatience:
		return shortest
	default:
		return policy.DefaultPatience
	}
}

// ends reports whether it is known when a process that leads ends. It is not once it has taken longer than was
// expected by what a stranger may.
func (w wait) ends() bool { return w.known && w.led <= w.needs+policy.DefaultPatience }

// patience is how long a process waits for others of its place, most at the most: as long as sharing with them would
// have cost it.
func (p *planner) patience(w wait, most time.Duration) time.Duration {
	if _, places := p.in.Order.(policy.Placer); !places || !w.known { // users of fifo and p3 get the order of starts
		return most
	}
	return min(max(time.Duration(w.equals)*w.needs, shortest), most)
}
