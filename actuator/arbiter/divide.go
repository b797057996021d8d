package arbiter

import (
	"context"
	"errors"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/internal/rm"
)

// Channels divides the time of GPUs: channels.Enforcer.
type Channels interface {
	Apply(ctx context.Context, t channels.Target, s channels.Standing) (channels.Result, error)
	Inspect(ctx context.Context, t channels.Target, s channels.Standing) (channels.Result, error)
	Restore(ctx context.Context, processes ...rm.Process) error
	RestoreAll(ctx context.Context) (left int, err error)
}

// divided is the result of the changes on a GPU.
type divided struct {
	gpu     string
	results []core.ChangeResult
}

// divide makes the changes on one GPU in a goroutine, one after another.
func (a *Arbiter) divide(ctx context.Context, d core.Division) {
	go func() {
		out := divided{gpu: d.GPU}
		type who struct {
			core.Process
			container string
		}
		failed := map[who]bool{}
		for _, c := range d.Changes {
			of := who{c.Process, c.ContainerID}
			if failed[of] || ctx.Err() != nil { // the shutdown restores everything
				out.results = append(out.results, core.ChangeResult{Skipped: true})
				continue
			}
			// A shutdown must not interrupt a change.
			r := a.change(context.WithoutCancel(ctx), c)
			failed[of] = r.Err != nil
			out.results = append(out.results, r)
		}
		a.divided <- out
	}()
}

// callTimeout bounds one change; the driver may hang.
const callTimeout = time.Second

// change makes one change. It runs outside the loop and shares no state with it.
func (a *Arbiter) change(ctx context.Context, c core.Change) (r core.ChangeResult) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t, s := standingOf(c)
	if c.Kind == core.Restore && !s.Off && len(s.Slices) == 0 {
		if c.Gang != nil { // switches all channels as one; the processes' own changes are undone one by one
			if res, err := a.o.Channels.Apply(ctx, t, s); err == nil {
				r.AsOne, r.Skew = res.AsOne, res.Skew
			}
		}
		r.Err = a.o.Channels.Restore(ctx, t.Processes...)
	} else {
		if s.Off {
			s.Lease = max(c.Stands.Until.Sub(a.o.Now()), time.Millisecond)
		}
		apply := a.o.Channels.Apply
		if c.Kind == core.InspectChannels {
			apply = a.o.Channels.Inspect
		}
		res, err := apply(ctx, t, s)
		if err == nil && len(res.Groups) == 0 {
			err = channels.ErrNoGroup
		}
		r.Unsettled, r.Own, r.AsOne, r.Skew, r.Err = res.Unsettled, len(res.Changed) > 0, res.AsOne, res.Skew, err
	}
	r.Gone, r.NoGroup = errors.Is(r.Err, channels.ErrGone), errors.Is(r.Err, channels.ErrNoGroup)
	return r
}

// standingOf converts a change into the enforcer's target and standing.
func standingOf(c core.Change) (t channels.Target, s channels.Standing) {
	t.Container = c.ContainerID
	s.Off, s.Reason = c.Stands.Off, c.Stands.Reason
	if c.Gang == nil {
		t.Processes, s.Slice = []rm.Process{rm.Process(c.Process)}, c.Stands.Slice
		return t, s
	}
	for _, p := range c.Gang.Processes {
		t.Processes = append(t.Processes, rm.Process(p))
	}
	t.GPUs, s.Slices = c.Gang.GPUs, c.Gang.Slices
	return t, s
}

// MemoryGuard stops allocations of GPU memory at their entry, and asks a memory.Decider whether to
// grant them.
type MemoryGuard interface {
	// Open begins to guard if this machine can; Close releases every process.
	Open(ctx context.Context) error
	Close() error
	// Why returns why nothing is guarded on this machine, or nil.
	Why() error
	// Cover sets which containers are guarded. If it is not called for a while, the guard releases
	// every process. It MUST NOT block.
	Cover(targets []memory.Target)
	// Reconsider makes the guard ask again about every waiting allocation and every ceiling.
	// It MUST NOT block.
	Reconsider()
	// SetMaxWait bounds how long an allocation waits, also those that wait already.
	SetMaxWait(d time.Duration)
	// Failures returns the covered containers that may exceed their limits, by id, and why: an
	// allocation could not be denied, or is not guarded.
	Failures() map[string]string
	// Waits returns why a container's allocation waits, by the container's id.
	Waits() map[string]string
}
