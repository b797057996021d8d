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

// divided is how the changes on a GPU came out.
type divided struct {
	gpu     string
	results []core.ChangeResult
}

// divide carries the changes on one GPU out, one after another, beside.
func (a *Arbiter) divide(ctx context.Context, d core.Division) {
	go func() {
		out := divided{gpu: d.GPU}
		failed := map[core.Process]bool{}
		for _, c := range d.Changes {
			if failed[c.Process] || ctx.Err() != nil { // at the end everything is put back
				out.results = append(out.results, core.ChangeResult{Skipped: true})
				continue
			}
			// A shutdown must not cut a change in the middle.
			r := a.change(context.WithoutCancel(ctx), c)
			failed[c.Process] = r.Err != nil
			out.results = append(out.results, r)
		}
		a.divided <- out
	}()
}

// callTimeout bounds one change. A call that hangs is the driver's.
const callTimeout = time.Second

// change runs beside the loop and touches nothing of it.
func (a *Arbiter) change(ctx context.Context, c core.Change) (r core.ChangeResult) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p := rm.Process{PID: c.Process.PID, Start: c.Process.Start}
	if c.Kind == core.Restore {
		r.Err = a.o.Channels.Restore(ctx, p)
	} else {
		s := channels.Standing{Slice: c.Stands.Slice, Off: c.Stands.Off, Reason: c.Stands.Reason}
		if s.Off {
			s.Lease = max(c.Stands.Until.Sub(a.o.Now()), time.Millisecond)
		}
		apply := a.o.Channels.Apply
		if c.Kind == core.Look {
			apply = a.o.Channels.Inspect
		}
		res, err := apply(ctx, channels.Target{Container: c.ContainerID, Processes: []rm.Process{p}}, s)
		if err == nil && len(res.Groups) == 0 {
			err = channels.ErrNoGroup
		}
		r.Unsettled, r.Own, r.Err = res.Unsettled, len(res.Changed) > 0, err
	}
	r.Gone, r.NoGroup = errors.Is(r.Err, channels.ErrGone), errors.Is(r.Err, channels.ErrNoGroup)
	return r
}

// MemoryGuard holds allocations of GPU memory at their entry, and asks a memory.Decider what
// becomes of them.
type MemoryGuard interface {
	// Open begins to guard where this machine can; Close releases everybody.
	Open(ctx context.Context) error
	Close() error
	// Why says why nothing is guarded on this machine; nil: it works.
	Why() error
	// Cover is told which containers to guard; all others are let alone. A guard that does not
	// hear of it for a while releases everybody.
	Cover(targets []memory.Target)
	// Reconsider makes it ask again about every allocation that waits, and about ceilings. It
	// MUST NOT block.
	Reconsider()
	// Failures says which of the covered containers may get more than their limits, by id, and
	// why: an allocation could not be denied, or is not guarded.
	Failures() map[string]string
	// Waits says of each container that stands at an allocation why, by id.
	Waits() map[string]string
}
