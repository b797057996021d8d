package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// Preemption is the cost model of stopping one container for another. A stop takes effect at the
// next kernel boundary: a launched kernel runs to its end.
type Preemption struct {
	// Never: a running container keeps its turn to its end.
	Never bool
	// Switch is how long it takes to pause one container and unpause another.
	Switch time.Duration
	// Quantum is how long all containers on a GPU run undisturbed after a change there, so that
	// nothing thrashes; many times Switch.
	Quantum time.Duration
}

// DefaultPreemption is for pauses through Docker, which take 10–20 ms.
func DefaultPreemption() *Preemption {
	return &Preemption{Switch: 40 * time.Millisecond, Quantum: 250 * time.Millisecond}
}

// challenger is the first container in order that waits, with the reason to release it now.
type challenger struct {
	entry
	why string
}

// challenge finds the running containers that are stopped for the first one that waits: they are on
// its GPUs and come after it in order. It does so only if the waiting one would otherwise miss its
// deadline, can still meet it, and no other loses as much by it.
func (p *planner) challenge(queue []entry) (challenger, []entry) {
	if p.in.Preemption == nil || p.in.Preemption.Never {
		return challenger{}, nil
	}
	i := slices.IndexFunc(queue, func(e entry) bool {
		_, waits := p.turns.refuse[e.ID]
		return waits
	})
	if i < 0 || !queue[i].first.Urgent() {
		return challenger{}, nil
	}
	c := queue[i]
	var ahead time.Duration // until the GPU is free if nobody is stopped
	known := true
	var victims []entry
	for j, e := range queue {
		if p.yields(e) {
			continue // it does not keep others waiting
		}
		if _, refused := p.turns.refuse[e.ID]; refused || !e.incumbent || !p.meet(c, e) {
			continue
		}
		if !p.settled(e) {
			return challenger{}, nil
		}
		known = known && e.first.Known
		ahead = max(ahead, e.first.Remaining)
		if j > i && !p.hurts(c, e) {
			victims = append(victims, e)
		}
	}
	why, worth := p.worth(c, ahead, known)
	if !worth {
		return challenger{}, nil
	}
	return challenger{c, why}, victims
}

// meet reports whether two containers use one arbitrated GPU.
func (p *planner) meet(a, b entry) bool {
	return slices.ContainsFunc(a.on, func(g string) bool { return p.gpus[g].Arbitrated && slices.Contains(b.on, g) })
}

// settled reports whether the incumbent has run long enough to be disturbed.
func (p *planner) settled(e entry) bool {
	return p.in.Now.Sub(e.Since) >= p.in.Preemption.Quantum
}

// worth reports whether c would miss its deadline if it waited, and meets it if it runs now. If
// nothing is known of those ahead or of c, it would miss. If nothing is known of c, it may still
// meet it.
func (p *planner) worth(c entry, ahead time.Duration, known bool) (string, bool) {
	left := c.first.Deadline.Sub(p.in.Now)
	need, least := p.in.Preemption.Switch, p.in.Preemption.Switch
	if c.first.Known {
		need, least = need+c.first.Remaining, least+c.first.Least
	}
	if left < least {
		return "", false // too late either way
	}
	if known && c.first.Known && ahead+need <= left {
		return "", false // it can wait
	}
	return fmt.Sprintf("it has %.2f s to its deadline and would miss it", left.Seconds()), true
}

// hurts reports whether stopping v for c would only move the miss from one to the other: v meets
// its deadline if it continues, and misses it behind c.
func (p *planner) hurts(c, v entry) bool {
	if !v.first.Urgent() || !v.first.Known || !c.first.Known {
		return false
	}
	slack := policy.Laxity(v.first, p.in.Now)
	return slack >= 0 && slack < c.first.Remaining+2*p.in.Preemption.Switch
}
