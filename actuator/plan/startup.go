package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// Startup is the cost model of starting beside others. The driver makes contexts
// one after another for the whole machine, and those that start share cores and
// PCIe: a start-up of 1.7 s took 0.9–1.5 s longer beside seven others, and a task
// that copied its result out while six started took 0.8 s longer than alone (H200).
type Startup struct {
	// Margin is the laxity below which a start is at risk by a single neighbour
	// that takes no time.
	Margin time.Duration
	// Settle is by how much the reasons must be gone before who is held goes on, so
	// that nobody is stopped and let go again and again as estimates change.
	Settle time.Duration
	// Neighbour is how much longer a start-up takes for each other one beside it,
	// where nothing worse was measured.
	Neighbour time.Duration
	// Typical is how long a start-up takes of which nothing is known.
	Typical time.Duration
	// Longest is for how long of its own start-up, without the time that it stood
	// still, a task may keep others from theirs, and how much may be left of one that
	// does so at its end.
	Longest time.Duration
	// Patience is how long a task stands still in all at most before it is not kept
	// from starting any more.
	Patience time.Duration
}

// DefaultStartup is what was measured on an H200.
func DefaultStartup() *Startup {
	return &Startup{Margin: 100 * time.Millisecond, Settle: 500 * time.Millisecond, Neighbour: 200 * time.Millisecond, Typical: 2 * time.Second, Longest: 5 * time.Second, Patience: policy.DefaultPatience}
}

// blind is the share of its relative deadline that a task is taken to have to spare
// of which nothing is known.
const blind = 0.1

// admitStarts decides whose start-up waits: while a task is on its way to its first
// launch, or to its end after its last one, and the others that start would make it
// miss its deadline, those with later deadlines, and those without, are held before
// they create their context, or where they are. Only those are that can afford it.
// Where no deadline is at risk nobody is.
func (p *planner) admitStarts() {
	if p.in.Startup == nil {
		return
	}
	starters := p.starters()
	for _, e := range p.queue { // in order, so that who gives way itself keeps nobody
		if !p.starts(e) && !p.ends(e) {
			continue
		}
		var behind []entry
		for _, w := range starters {
			if w.ID != e.ID && p.disturbs(w, e) && p.after(w, e) && p.affords(w, e) {
				behind = append(behind, w)
			}
		}
		first := "start up"
		if e.Phase != Preparing {
			first = "end"
		}
		reason := fmt.Sprintf("lets %s %s first, which has little time to its deadline", e.Name, first)
		begin, keep := p.endangered(e, len(behind), 0), p.endangered(e, len(behind), p.in.Startup.Settle)
		for _, w := range behind {
			if goesOn := !begin && (!keep || !w.stalled()); goesOn || p.back[w.ID] != "" {
				continue
			}
			p.back[w.ID] = reason
			if len(w.Tasks) > 0 {
				p.waits[w.ID] = Wait{Start, reason}
			}
		}
	}
}

// stalled: it is held for another one's start-up.
func (c Container) stalled() bool { return c.Standing == Ours && c.Cause == Start }

// starters are the containers that are starting up and may be held, those among
// them whose task is not known yet: the gate has seen their cuInit.
func (p *planner) starters() []entry {
	var all []entry
	for _, c := range p.in.Containers {
		switch {
		case c.Phase != Preparing || !c.Controllable() || !p.free(c):
		case len(c.Tasks) > 0:
			if e := p.entry(c); len(e.on) == 0 || p.onArbitrated(e) {
				all = append(all, e)
			}
		default:
			t := task.Task{ID: c.ID, ContainerID: c.ID, Start: task.Mark{Time: p.in.Now}}
			if c.Relative > 0 {
				t.Deadline = p.in.Now.Add(c.Relative)
			}
			coming := c
			coming.Tasks = []task.Task{t}
			e := entry{Container: c, first: coming.Job(p.in.Order)}
			all = append(all, e)
		}
	}
	return all
}

// free: nothing but the policy decides about the container now.
func (p *planner) free(c Container) bool {
	_, waits := p.waits[c.ID]
	return !waits && p.barred[c.ID] == "" && p.swap[c.ID] == "" && !c.Memory.Out && !c.Memory.Busy && c.Memory.Starved == ""
}

func (p *planner) onArbitrated(e entry) bool {
	return slices.ContainsFunc(e.on, func(g string) bool { return p.gpus[g].Arbitrated })
}

// starts reports whether e is on its way to its first launch and can still be in
// time, and others may be kept for that.
func (p *planner) starts(e entry) bool {
	if e.Phase != Preparing || !p.inTime(e) {
		return false
	}
	// One that will not get to its launch in that time is not helped.
	ran := e.first.Ran(p.in.Now)
	return ran <= p.in.Startup.Longest && ran+e.Estimates[e.first.ID].Startup <= p.in.Startup.Longest
}

// ends reports whether e is near its end, in the host phase after its last launch or
// before that, and can still be in time, and others may be kept for that.
func (p *planner) ends(e entry) bool {
	return (e.Phase == Computing || e.Phase == Finishing) && e.Standing == Runs && e.first.Known && e.first.Remaining <= p.in.Startup.Longest && p.inTime(e)
}

// inTime: e has a deadline that it can still meet, and nothing but the policy decides
// about it.
func (p *planner) inTime(e entry) bool {
	if !e.first.Urgent() || !p.onArbitrated(e) || !p.free(e.Container) {
		return false
	}
	left := e.first.Deadline.Sub(p.in.Now)
	return left > 0 && (!e.first.Known || left >= e.first.Least) && !policy.Late(e.first, p.in.Now)
}

// disturbs reports whether the start-up of w falls into a host phase of e. What e has
// on the GPU takes no longer for it: while e computes, a start-up does not matter that
// is over before the last third of what e has left, so that the next one is ready
// when e is through.
func (p *planner) disturbs(w, e entry) bool {
	return e.Phase != Computing || 3*p.startup(w) >= 2*e.first.Remaining
}

// after reports whether w starts after e: its deadline is later, and it is not
// before e in order for a reason that is known. An order by laxity takes whoever is
// a stranger for the most urgent, and changes as long as one stands still.
func (p *planner) after(w, e entry) bool {
	strange := w.first.Urgent() && !w.first.Expedited && (w.stalled() || !w.first.Known || !e.first.Known)
	if !strange && p.in.Order.Compare(w.first, e.first) < 0 {
		return false
	}
	return !w.first.Urgent() || w.first.Deadline.After(e.first.Deadline)
}

// affords reports whether w can wait until e has started up, or ended: that must not
// only move the miss from one to the other, and nobody waits for ever.
func (p *planner) affords(w, e entry) bool {
	if w.first.Duration(p.in.Now)-w.first.Ran(p.in.Now) >= p.in.Startup.Patience {
		return false
	}
	if !w.first.Urgent() || policy.Late(w.first, p.in.Now) {
		return true
	}
	need := p.startup(e)
	if e.Phase != Preparing {
		need = e.first.Remaining
	}
	// By an estimate by which it is late in any case, of runs that were slowed down by
	// others, nothing can be said.
	if slack := policy.Laxity(w.first, p.in.Now); w.first.Known && slack >= 0 {
		if !w.stalled() {
			need += p.in.Startup.Settle
		}
		return slack >= need
	}
	return w.first.Deadline.Sub(e.first.Deadline) >= need
}

// startup is what is left of e's start-up.
func (p *planner) startup(e entry) time.Duration {
	if s := e.Estimates[e.first.ID].Startup; s > 0 {
		return s
	}
	return max(0, p.in.Startup.Typical-e.first.Ran(p.in.Now))
}

// endangered reports whether e would miss its deadline, or meet it by less than more,
// if n others started beside it.
func (p *planner) endangered(e entry, n int, more time.Duration) bool {
	slack := time.Duration(blind * float64(e.first.Deadline.Sub(e.first.Start.Time)))
	if e.first.Known {
		slack = policy.Laxity(e.first, p.in.Now)
	}
	longer := max(time.Duration(n)*p.in.Startup.Neighbour, e.Estimates[e.first.ID].Crowded)
	return n > 0 && slack < p.in.Startup.Margin+longer+more
}
