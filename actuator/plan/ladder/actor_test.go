package ladder_test

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
)

// phase is a piece of a task: on the GPU, or on the host.
type phase struct {
	onGPU bool
	d     time.Duration
}

// actor is a process of the world.
type actor struct {
	proc
	tenant ladder.Tenant
	traced proc // as it was when the present window of the trace began
	arrive time.Duration
	// A task goes through its phases, again and again if it is endless.
	phases  []phase
	endless bool
	step    int
	host    time.Duration // until when it is in a host phase
	here    bool
	ended   time.Duration
	// A server has a request each period, from its arrival on.
	every, service time.Duration
	upcoming       time.Duration
	queue          []time.Duration // arrivals of those that are not answered
	begun          bool            // the first of the queue has begun
	busy, quiet    time.Duration   // since when the present interval lasts; since when nothing is queued
	waits, takes   []time.Duration
	offSince       time.Duration
	reading        reading
	until          time.Duration // then it is put on without another plan
	overdue        int           // how often it was put on because no plan did so in time
	leaves         int           // how often its work on the GPU was through
	fresh          bool          // its latest request came while it had none
	carried        int           // calls that had been carried out then
	// One with requests of several phases: the last phase is the pause between two of them.
	asks          bool
	asked, paused time.Duration // when the present request began; when the present pause did, 0: none
}

const never = time.Duration(1<<62 - 1)

func (a *actor) next() time.Duration {
	at := a.goesOn()
	if a.off {
		at = min(at, a.until)
	}
	return at
}

func (a *actor) goesOn() time.Duration {
	switch {
	case a.every > 0:
		return a.upcoming
	case !a.here && a.ended == 0:
		return a.arrive
	case a.host > 0:
		return a.host
	}
	return never
}

// happen takes the actor on. It reports whether a task began or ended.
func (a *actor) happen(now time.Duration) bool {
	if a.off && now >= a.until {
		a.off = false
		a.overdue++
	}
	if a.every > 0 {
		return a.serve(now)
	}
	changed := false
	if !a.here && a.ended == 0 && a.arrive <= now {
		a.here, a.step, changed = true, -1, true
	}
	for a.here && a.left == 0 && a.host <= now {
		a.host = 0
		if a.step++; a.step == len(a.phases) {
			if !a.endless {
				a.here, a.ended = false, now
				return true
			}
			a.step = 0
		}
		if a.asks {
			changed = a.ask(now) || changed
		}
		if p := a.phases[a.step]; p.onGPU {
			a.left = p.d
		} else {
			a.host = now + p.d
		}
	}
	return changed
}

// ask begins a request, or a pause. It reports whether it did.
func (a *actor) ask(now time.Duration) bool {
	switch a.step {
	case 0:
		a.asked, a.paused = now, 0
	case len(a.phases) - 1:
		a.takes, a.paused = append(a.takes, now-a.asked), now
	default:
		return false
	}
	return true
}

func (a *actor) serve(now time.Duration) bool {
	came := false
	if a.upcoming <= now {
		came = !a.here
		a.here = true
		if len(a.queue) == 0 && (a.busy == 0 || now-a.quiet > busyGap) {
			a.busy = now
		}
		a.queue = append(a.queue, now)
		a.fresh = len(a.queue) == 1
		a.upcoming += a.every
	}
	if a.begun && a.left == 0 {
		a.takes = append(a.takes, now-a.queue[0])
		a.queue, a.begun, a.quiet = a.queue[1:], false, now
	}
	if !a.begun && len(a.queue) > 0 {
		a.left, a.begun = a.service, true
		a.waits = append(a.waits, -a.queue[0])
	}
	return came
}

// The kinds of actors.

func labelled(id string) *actor {
	return &actor{tenant: ladder.Tenant{ID: id, Container: id, Name: id, Labelled: true}}
}

func server(id string, deadline, every, service time.Duration) *actor {
	a := labelled(id)
	a.every, a.service = every, service
	a.tenant.Server, a.tenant.Deadline = true, deadline
	return a
}

// kernels is a server whose requests have several kernels, each followed by some time on the host, with
// pauses between them.
func kernels(id string, deadline time.Duration, n int, kernel, host, pause time.Duration) *actor {
	a := labelled(id)
	a.tenant.Server, a.tenant.Deadline, a.asks, a.endless = true, deadline, true, true
	a.phases = append(slices.Repeat([]phase{{true, kernel}, {false, host}}, n), phase{false, pause})
	return a
}

// trainer is of class batch and never ends: steps on the GPU, with gaps.
func trainer(id string, step, gap time.Duration) *actor {
	a := labelled(id)
	a.tenant.Job.Batch = true
	a.phases, a.endless = []phase{{true, step}}, true
	if gap > 0 {
		a.phases = append(a.phases, phase{false, gap})
	}
	return a
}

func share(a *actor, part float64) *actor {
	a.tenant.Share = part
	return a
}

func unlabelled(a *actor) *actor {
	a.tenant.Labelled = false
	return a
}

func at(a *actor, t time.Duration) *actor {
	a.arrive = t
	return a
}
