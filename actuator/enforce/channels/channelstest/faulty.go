package channelstest

import (
	"context"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/internal/rm"
)

// Faulty is a driver whose calls fail, wait or never return as the hooks say. A nil hook
// does nothing.
type Faulty struct {
	channels.Driver
	// Before runs before a call. If it returns an error, the call has no effect.
	Before func(ctx context.Context, call string) error
	// After runs after a call. If it returns an error, the call fails though it came into effect.
	After func(call string) error
}

func (f Faulty) around(ctx context.Context, call string, run func() error) error {
	if f.Before != nil {
		if err := f.Before(ctx, call); err != nil {
			return err
		}
	}
	err := run()
	if err == nil && f.After != nil {
		err = f.After(call)
	}
	return err
}

// Find implements channels.Driver.
func (f Faulty) Find(ctx context.Context, p rm.Process) (list []rm.Group, err error) {
	err = f.around(ctx, "find", func() error { list, err = f.Driver.Find(ctx, p); return err })
	return list, err
}

// Slice implements channels.Driver.
func (f Faulty) Slice(ctx context.Context, g rm.Group) (d time.Duration, err error) {
	err = f.around(ctx, "slice", func() error { d, err = f.Driver.Slice(ctx, g); return err })
	return d, err
}

// SetSlice implements channels.Driver.
func (f Faulty) SetSlice(ctx context.Context, g rm.Group, d time.Duration) error {
	return f.around(ctx, "setslice", func() error { return f.Driver.SetSlice(ctx, g, d) })
}

// Switch implements channels.Driver.
func (f Faulty) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	return f.around(ctx, "switch", func() error { return f.Driver.Switch(ctx, groups, on) })
}

// SwitchAsOne implements channels.Driver.
func (f Faulty) SwitchAsOne(ctx context.Context, groups []rm.Group, on bool) (skew time.Duration, err error) {
	err = f.around(ctx, "switch as one", func() error { skew, err = f.Driver.SwitchAsOne(ctx, groups, on); return err })
	return skew, err
}
