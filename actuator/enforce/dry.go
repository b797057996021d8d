package enforce

import (
	"context"
	"sync"

	"github.com/laxity/laxity/actuator/record"
)

// Dry is an Enforcer that changes nothing. It records what it would have done, so that the
// following decisions are the same.
type Dry struct {
	// Real is asked for the state of what Dry did not touch. Only its Status is
	// called.
	Real Enforcer

	mu     sync.Mutex
	paused map[string]bool
	calls  uint64
}

// Calls implements enforce.Enforcer: the pauses and unpauses that there would
// have been.
func (d *Dry) Calls() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// Status implements Enforcer.
func (d *Dry) Status(ctx context.Context, id string) (Status, error) {
	s, err := d.Real.Status(ctx, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused[id] && err == nil {
		s.Paused = true
	}
	return s, err
}

// Pause implements Enforcer.
func (d *Dry) Pause(ctx context.Context, h record.Hold) error {
	d.mu.Lock()
	ours := d.paused[h.ContainerID]
	d.mu.Unlock()
	if ours {
		return nil
	}
	s, err := d.Real.Status(ctx, h.ContainerID)
	switch {
	case err != nil:
		return err
	case s.Paused:
		return ErrForeign
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused == nil {
		d.paused = map[string]bool{}
	}
	d.paused[h.ContainerID] = true
	d.calls++
	return nil
}

// Unpause implements Enforcer.
func (d *Dry) Unpause(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.paused[id] {
		return ErrForeign
	}
	delete(d.paused, id)
	d.calls++
	return nil
}
