package actuator

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/internal/rm"
)

// Channels divides the time of GPUs: channels.Enforcer.
type Channels interface {
	Apply(ctx context.Context, t channels.Target, s channels.Standing) (channels.Result, error)
	Look(ctx context.Context, t channels.Target, s channels.Standing) (channels.Result, error)
	Restore(ctx context.Context, processes ...rm.Process) error
	RestoreAll(ctx context.Context) (left int, err error)
}

// channelKeeper is the loop's part that divides the time of GPUs by slices and by
// channels off and on. Nobody is paused for others on a GPU that it divides.
type channelKeeper struct {
	do   Channels
	gpus map[string]*divided
	// tenants are by PID, which is ladder.Tenant.ID: those that the snapshot lists, and those
	// of whom something is not their own yet.
	tenants map[string]*tenant
	// aside are containers, by id, that are left alone until then: one is about to be
	// swapped out.
	aside map[string]time.Time
	used  usage
	// wake fires when a plan asked to be made again.
	wake    *time.Timer
	results chan divideResult
}

// divided is what is known of one GPU's division.
type divided struct {
	state ladder.State
	plan  ladder.Plan
	// until is how long the order stands though nobody asks for it any more.
	until time.Time
	// busy: changes are being carried out. No plan is made meanwhile.
	busy bool
}

func newChannelKeeper(do Channels) *channelKeeper {
	if do == nil {
		return nil
	}
	k := &channelKeeper{
		do: do, gpus: map[string]*divided{}, tenants: map[string]*tenant{}, aside: map[string]time.Time{},
		used: usage{}, wake: time.NewTimer(time.Hour), results: make(chan divideResult, 16),
	}
	k.wake.Stop()
	return k
}

// awake and done are for the loop's select; nil without a keeper.
func (k *channelKeeper) awake() <-chan time.Time {
	if k == nil {
		return nil
	}
	return k.wake.C
}

func (k *channelKeeper) done() <-chan divideResult {
	if k == nil {
		return nil
	}
	return k.results
}

// divides reports whether the time of GPUs is divided by channels: then arbitration
// pauses nobody. The paper's policy pauses.
func (l *loop) divides() bool { return l.channels != nil && !l.Config().scheme().pauses }

// lingers is how long an order stands after the contention was last seen. Servers that
// compute now and then contend now and then: their slices would be set and put back all the
// time, and each first request would find none. Slices cost nothing while nobody contends.
const lingers = 30 * time.Second

// divide makes a plan for each GPU and sets its changes going.
func (l *loop) divide(ctx context.Context, in plan.Input) {
	k, now := l.channels, in.Now
	if k == nil {
		return
	}
	maps.DeleteFunc(k.aside, func(_ string, until time.Time) bool { return !now.Before(until) })
	tenants := l.tenantsOf(in)
	for _, g := range l.snap.GPUs {
		k.gpu(g.UUID)
	}
	acts := l.divides() && l.handsOff(now) == ""
	for gpu, d := range k.gpus {
		if d.busy {
			continue
		}
		d.plan = ladder.Plan{}
		if l.arbitrated(gpu) {
			d.until = now.Add(lingers)
		}
		if acts && l.Config().Arbitrate != Never && now.Before(d.until) {
			d.plan = ladder.Make(ladder.Input{
				Now: now, Order: in.Order, Floor: l.Config().BatchFloor, Tenants: tenants[gpu],
				Limits: ladder.Limits{MaxHold: l.Config().MaxHold},
			}, d.state)
		}
		d.state = d.plan.State
		if d.plan.Report != "" {
			l.decideOnce("order/"+gpu, decision.Decision{Kind: decision.Order, Result: decision.Ignored, Reason: d.plan.Report, GPUs: []string{gpu}})
		}
		changes := k.putBack(gpu, d.plan, now)
		for _, c := range d.plan.Changes {
			changes = append(changes, change{c.Tenant, kindOf(c), c.Standing})
		}
		if len(changes) == 0 {
			changes = k.lookAgain(gpu, now)
		}
		l.carryOutChanges(ctx, gpu, changes)
	}
	k.forget(tenants)
	k.sleep(now)
}

// blind puts everything back when nothing is known for certain any more: who is first
// then, nobody can say.
func (l *loop) blind(ctx context.Context, now time.Time) {
	k := l.channels
	if k == nil {
		return
	}
	for gpu, d := range k.gpus {
		if !d.busy {
			d.state, d.plan = ladder.State{}, ladder.Plan{}
			l.carryOutChanges(ctx, gpu, k.putBack(gpu, d.plan, now))
		}
	}
}

// putBack are the changes that put back those whom the plan gives no standing (any more).
func (k *channelKeeper) putBack(gpu string, p ladder.Plan, now time.Time) (changes []change) {
	for _, id := range slices.Sorted(maps.Keys(k.tenants)) {
		t := k.tenants[id]
		if _, stands := p.Standings[id]; !stands && t.gpu == gpu && t.changed() && t.due(now) {
			changes = append(changes, change{tenant: id, kind: restore})
		}
	}
	return changes
}

// lookAgain is a look at the one on the GPU that is due for it first, if any: it may have made
// contexts since, or changed its slice.
func (k *channelKeeper) lookAgain(gpu string, now time.Time) []change {
	first := ""
	for _, id := range slices.Sorted(maps.Keys(k.tenants)) {
		t := k.tenants[id]
		if t.gpu == gpu && t.changed() && !t.doubtful && !t.gone && t.due(now) && !now.Before(t.look.next) &&
			(first == "" || t.look.next.Before(k.tenants[first].look.next)) {
			first = id
		}
	}
	if first == "" {
		return nil
	}
	return []change{{tenant: first, kind: lookAt}}
}

// forget drops who is not listed any more, once all is its own.
func (k *channelKeeper) forget(listed map[string][]ladder.Tenant) {
	present := map[string]bool{}
	for _, tenants := range listed {
		for _, t := range tenants {
			present[t.ID] = true
		}
	}
	maps.DeleteFunc(k.tenants, func(id string, t *tenant) bool {
		return !present[id] && !t.changed()
	})
}

func (k *channelKeeper) gpu(uuid string) *divided {
	if k.gpus[uuid] == nil {
		k.gpus[uuid] = &divided{}
	}
	return k.gpus[uuid]
}

func (k *channelKeeper) busy() bool {
	for _, d := range k.gpus {
		if d.busy {
			return true
		}
	}
	return false
}

// sleep sets the timer for the next plan that is to be made though nothing happens.
func (k *channelKeeper) sleep(now time.Time) {
	if again := k.next(now); !again.IsZero() {
		k.wake.Reset(max(again.Sub(now), time.Millisecond))
	}
}

// next is when that is; zero: there is no need. The end of changes under way wakes the loop
// by itself.
func (k *channelKeeper) next(now time.Time) (again time.Time) {
	by := func(t time.Time) {
		if !t.IsZero() && (again.IsZero() || t.Before(again)) {
			again = t
		}
	}
	for _, d := range k.gpus {
		if !d.busy {
			by(d.plan.Again)
		}
	}
	for _, t := range k.tenants {
		switch {
		case !t.due(now):
			by(t.retry.next)
		case t.changed() && !k.gpu(t.gpu).busy:
			by(t.look.next)
		}
	}
	return again
}

// setAside leaves a container alone for a moment, and reports whether all of it is its own
// already.
func (k *channelKeeper) setAside(container string, now time.Time) bool {
	if k == nil {
		return true
	}
	k.aside[container] = now.Add(asideFor)
	return !k.acts(container)
}

// asideFor is for how long: what it is set aside for has begun by then, or is asked for again.
const asideFor = time.Second
