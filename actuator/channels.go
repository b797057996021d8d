package actuator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm"
)

// Channels divides the time of GPUs: channels.Enforcer.
type Channels interface {
	Apply(ctx context.Context, t channels.Target, s channels.Standing) (channels.Result, error)
	Restore(ctx context.Context, processes ...rm.Process) error
	RestoreAll(ctx context.Context) (left int, err error)
}

// channelKeeper is the loop's part that divides the time of GPUs by slices and by
// channels off and on. Nobody is paused for others on a GPU that it divides.
type channelKeeper struct {
	do   Channels
	gpus map[string]*divided
	// tenants are by id, as ladder.Tenant.ID.
	tenants map[string]*tenant
	used    usage
	// wake fires when a plan asked to be made again.
	wake    *time.Timer
	results chan divideResult
}

// divided is what is known of one GPU's division.
type divided struct {
	state ladder.State
	plan  ladder.Plan
	// busy: changes are being carried out. No plan is made meanwhile.
	busy bool
}

// tenant is a process on a GPU.
type tenant struct {
	process         rm.Process
	gpu             string
	container, name string
	stands          ladder.Standing
	// retry is when it is tried again after a call failed; until then it is left as it is,
	// and left says why.
	retry backoff
	left  string
}

// changed reports whether something is not its own.
func (t *tenant) changed() bool { return t.stands.Off || t.stands.Slice != 0 }

// divideResult is what came of a GPU's changes.
type divideResult struct {
	gpu     string
	changes []outcome
}

type outcome struct {
	id, kind string
	stands   ladder.Standing // if it succeeds
	err      error
	// unsettled: its own program may yet set the slice.
	unsettled bool
}

func newChannelKeeper(do Channels) *channelKeeper {
	if do == nil {
		return nil
	}
	k := &channelKeeper{
		do: do, gpus: map[string]*divided{}, tenants: map[string]*tenant{},
		used: usage{}, wake: time.NewTimer(time.Hour), results: make(chan divideResult, 16),
	}
	k.wake.Stop()
	return k
}

// awake and results are for the loop's select; nil without a keeper.
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

// divide makes a plan for each GPU and sets its changes going.
func (l *loop) divide(ctx context.Context, in plan.Input) {
	if l.channels == nil {
		return
	}
	k, now := l.channels, in.Now
	tenants, present := l.tenantsOf(in), map[string]bool{}
	for _, g := range l.snap.GPUs {
		for _, t := range tenants[g.UUID] {
			present[t.ID] = true
		}
		d := k.gpu(g.UUID)
		if d.busy {
			continue
		}
		d.plan = ladder.Plan{}
		if l.divides() && l.arbitrated(g.UUID) && l.handsOff(now) == "" {
			d.plan = ladder.Make(ladder.Input{
				Now: now, Order: in.Order, Floor: l.Config().BatchFloor, Tenants: tenants[g.UUID],
				Limits: ladder.Limits{MaxHold: l.Config().MaxHold},
			}, d.state)
		}
		d.state = d.plan.State
		if d.plan.Report != "" {
			l.decideOnce("order/"+g.UUID, decision.Decision{Kind: decision.Order, Result: decision.Ignored, Reason: d.plan.Report, GPUs: []string{g.UUID}})
		}
		l.carryOutChanges(ctx, g.UUID, slices.Concat(l.undone(tenants[g.UUID], d.plan), d.plan.Changes))
	}
	maps.DeleteFunc(k.tenants, func(id string, _ *tenant) bool { return !present[id] })
	k.sleep(now)
}

// blind restores everybody when nothing is known for certain any more: who is first
// then, nobody can say.
func (k *channelKeeper) blind(l *loop, ctx context.Context) {
	if k == nil {
		return
	}
	for gpu, d := range k.gpus {
		if d.busy {
			continue
		}
		var changes []ladder.Change
		for id, t := range k.tenants {
			if t.gpu == gpu && t.changed() {
				changes = append(changes, ladder.Change{Tenant: id})
			}
		}
		d.state, d.plan = ladder.State{}, ladder.Plan{}
		l.carryOutChanges(ctx, gpu, changes)
	}
}

// undone are the changes that put back those whom the plan gives no standing any more.
func (l *loop) undone(tenants []ladder.Tenant, p ladder.Plan) (changes []ladder.Change) {
	for _, t := range tenants {
		is := l.channels.tenants[t.ID]
		if _, stands := p.Standings[t.ID]; !stands && is != nil && is.changed() && l.o.Now().After(is.retry.next) {
			changes = append(changes, ladder.Change{Tenant: t.ID})
		}
	}
	return changes
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
	var again time.Time
	by := func(t time.Time) {
		if !t.IsZero() && (again.IsZero() || t.Before(again)) {
			again = t
		}
	}
	for _, d := range k.gpus {
		by(d.plan.Again)
	}
	for _, t := range k.tenants {
		if t.retry.next.After(now) {
			by(t.retry.next)
		}
	}
	if !again.IsZero() {
		k.wake.Reset(max(again.Sub(now), time.Millisecond))
	}
}

// callTimeout bounds one change. A call that hangs is the driver's.
const callTimeout = time.Second

// carryOutChanges does so beside the loop, one after another. A change that neither sets
// nor switches puts a process's own slice back.
func (l *loop) carryOutChanges(ctx context.Context, gpu string, changes []ladder.Change) {
	if len(changes) == 0 || l.o.DryRun {
		return
	}
	k, now := l.channels, l.o.Now()
	k.gpu(gpu).busy = true
	calls := make([]call, len(changes))
	at := map[string]ladder.Standing{} // in the middle of the changes
	for i, c := range changes {
		t := k.tenants[c.Tenant]
		s, ok := at[c.Tenant]
		if !ok {
			s = t.stands
		}
		if s = after(s, c); s.Off {
			calls[i].lease = max(s.Until.Sub(now), time.Millisecond)
		}
		at[c.Tenant] = s
		calls[i].outcome = outcome{id: c.Tenant, kind: kindOf(c), stands: s}
		calls[i].target = channels.Target{Container: t.container, Processes: []rm.Process{t.process}}
	}
	ctx = context.WithoutCancel(ctx) // a shutdown must not cut a change in the middle
	go func() {
		r := divideResult{gpu: gpu}
		for _, c := range calls {
			c.carryOut(ctx, k.do)
			r.changes = append(r.changes, c.outcome)
		}
		k.results <- r
	}()
}

// after is how somebody stands after a change.
func after(s ladder.Standing, c ladder.Change) ladder.Standing {
	switch {
	case c.Set:
		s.Slice = c.Standing.Slice
	case c.Switch:
		s.Off, s.Until = c.Standing.Off, c.Standing.Until
	default:
		return ladder.Standing{}
	}
	s.Rank, s.Reason = c.Standing.Rank, c.Standing.Reason
	return s
}

func kindOf(c ladder.Change) string {
	switch {
	case c.Set:
		return "slice"
	case c.Switch && c.Standing.Off:
		return "off"
	case c.Switch:
		return "on"
	default:
		return "restore"
	}
}

// call is one change on its way.
type call struct {
	outcome
	target channels.Target
	lease  time.Duration
}

// carryOut runs beside the loop and touches nothing of it.
func (c *call) carryOut(ctx context.Context, do Channels) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if c.kind == "restore" {
		c.err = do.Restore(ctx, c.target.Processes...)
		return
	}
	r, err := do.Apply(ctx, c.target, channels.Standing{Slice: c.stands.Slice, Off: c.stands.Off, Lease: c.lease, Reason: c.stands.Reason})
	c.unsettled, c.err = r.Unsettled, err
}

// How soon a process that has no channels yet, or whose slice may yet change, is looked
// at again, at first and at most.
const againSoon, againLate = 25 * time.Millisecond, 500 * time.Millisecond

// finishDivide takes note of what came of a GPU's changes.
func (l *loop) finishDivide(r divideResult) {
	k, now := l.channels, l.o.Now()
	k.gpus[r.gpu].busy = false
	for _, c := range r.changes {
		t := k.tenants[c.id]
		if t == nil {
			continue // it has ended
		}
		switch {
		case errors.Is(c.err, channels.ErrGone):
			delete(k.tenants, c.id)
		case errors.Is(c.err, channels.ErrNoGroup), c.err == nil && c.unsettled:
			t.later(now, againSoon, againLate)
			t.left = "it has only just begun to use the GPU"
		case c.err != nil:
			t.later(now, 250*time.Millisecond, 5*time.Second)
			t.left = c.err.Error()
			l.decideOnce(c.id+"/order", decision.Decision{Kind: decision.Order, Result: decision.Failed, Reason: "it is left as it is",
				Error: c.err.Error(), Container: t.name, ContainerID: t.container, GPUs: []string{r.gpu}})
		default:
			t.stands, t.retry, t.left = c.stands, backoff{}, ""
			l.metrics.Changes.WithLabelValues(c.kind).Inc()
		}
	}
}

// restoreTimeout bounds the restoring at the end.
const restoreTimeout = 5 * time.Second

// settleChannels waits for what is under way, then puts everything back.
func (l *loop) settleChannels() {
	if l.channels == nil {
		return
	}
	for l.channels.busy() {
		l.finishDivide(<-l.channels.results) // each call ends by its timeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	if left, err := l.channels.do.RestoreAll(ctx); err != nil || left > 0 {
		l.log.Warn("cannot put back all time slices and channels; the guardian goes on", "processes", left, "err", err)
	}
}

// later waits before the next try, each time for longer.
func (t *tenant) later(now time.Time, first, most time.Duration) {
	t.retry.wait = min(max(2*t.retry.wait, first), most)
	t.retry.next = now.Add(t.retry.wait)
}

// tenantsOf lists the processes on each GPU.
func (l *loop) tenantsOf(in plan.Input) map[string][]ladder.Tenant {
	all := map[string][]ladder.Tenant{}
	l.channels.used.measure(l.snap)
	for i, c := range l.snap.Containers {
		p := in.Containers[i]
		for _, u := range l.users(c, p.Tasks) {
			for _, gpu := range u.gpus {
				t := l.tenant(c, p, u, in.Now)
				l.channels.used.tell(&t, gpu, len(c.Processes), in.Now)
				all[gpu] = append(all[gpu], t)
			}
		}
	}
	for gpu, n := range l.snap.Health.Unattributed {
		for i := range n {
			all[gpu] = append(all[gpu], ladder.Tenant{ID: fmt.Sprintf("host/%d", i), Name: "a process of the host"})
		}
	}
	return all
}

// user is a process of a container that uses GPUs.
type user struct {
	pid  int
	gpus []string
	task *task.Task // its unfinished one; nil: it has none
}

// users are the container's processes that use CUDA, those whose task has just begun
// among them.
func (l *loop) users(c task.Container, tasks []task.Task) []user {
	var all []user
	for _, p := range c.Processes {
		all = append(all, user{pid: p.PID, gpus: p.GPUs})
	}
	for i, t := range tasks {
		at := slices.IndexFunc(all, func(u user) bool { return u.pid == t.PID })
		if at < 0 {
			at = len(all)
			all = append(all, user{pid: t.PID})
		}
		u := &all[at]
		u.task = &tasks[i]
		if len(u.gpus) == 0 && t.GPUs[0] != task.UnknownGPU {
			u.gpus = t.GPUs
		}
		if len(u.gpus) == 0 && len(l.snap.GPUs) == 1 {
			u.gpus = []string{l.snap.GPUs[0].UUID}
		}
	}
	return all
}

// tenant is one process as the plan sees it.
func (l *loop) tenant(c task.Container, p plan.Container, u user, now time.Time) ladder.Tenant {
	k := l.channels
	t := ladder.Tenant{
		ID: fmt.Sprint(u.pid), Container: c.ID, Name: c.Name, Labelled: p.Managed, Never: p.Never,
		Server: p.Server && c.Spec.Deadline > 0, Deadline: c.Spec.Deadline.Duration(), Share: c.Spec.Share,
	}
	if u.task != nil {
		t.HasTask, t.Job, t.Wants = true, p.JobOf(*u.task), ladder.Unknown
	} else {
		t.Wants = ladder.No
	}
	if p.Standing != plan.Runs { // paused, or swapped out
		t.Wants = ladder.No
	}
	if p.Expedite != "" {
		t.Job.Expedited = true
	}
	switch known := k.tenants[t.ID]; {
	case !t.Labelled || t.Never:
	case p.Exempt != "", len(u.gpus) > 1: // on several GPUs: its slices would have to be one order
		t.Labelled = false
	case known != nil && known.container == c.ID:
		t.Stands, t.Labelled = known.stands, !known.retry.next.After(now)
	default:
		s, ok := proc.ReadStat("/proc", u.pid)
		if t.Labelled = ok; ok {
			k.tenants[t.ID] = &tenant{process: rm.Process{PID: u.pid, Start: s.Start}, gpu: u.gpus[0], container: c.ID, name: c.Name}
		}
	}
	return t
}
