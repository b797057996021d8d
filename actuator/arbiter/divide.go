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

// divide carries out the changes on one GPU, one after another, in a goroutine.
func (a *Arbiter) divide(ctx context.Context, d core.Division) {
	go func() {
		out := divided{gpu: d.GPU}
		failed := map[core.Process]bool{}
		for _, c := range d.Changes {
			if failed[c.Process] || ctx.Err() != nil { // the end restores everything
				out.results = append(out.results, core.ChangeResult{Skipped: true})
				continue
			}
			// A shutdown must not interrupt a change.
			r := a.change(context.WithoutCancel(ctx), c)
			failed[c.Process] = r.Err != nil
			out.results = append(out.results, r)
		}
		a.divided <- out
	}()
}

// callTimeout bounds one change; the driver may hang.
const callTimeout = time.Second

// change carries out one change. It runs outside the loop and shares no state with it.
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

// MemoryGuard stops allocations of GPU memory at their entry, and asks a memory.Decider whether to
// grant them.
type MemoryGuard interface {
	// Open begins to guard if this machine can; Close releases every process.
	Open(ctx context.Context) error
	Close() error
	// Why returns why nothing is guarded on this machine, or nil.
	Why() error
	// Cover sets which containers are guarded. Without a call for a while the guard releases
	// every process.
	Cover(targets []memory.Target)
	// Reconsider makes the guard ask again about every waiting allocation and every ceiling.
	// It MUST NOT block.
	Reconsider()
	// Failures returns the covered containers that may exceed their limits, by id, and why: an
	// allocation could not be denied, or is not guarded.
	Failures() map[string]string
	// Waits returns why a container's allocation waits, by the container's id.
	Waits() map[string]string
}
