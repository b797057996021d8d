package channels

import (
	"context"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// checked is a Driver that checks before each call that the PID still belongs to the process that
// is meant, and that this process is not exiting.
type checked struct {
	Driver
	state func(rm.Process) (State, error)
}

func (e *Enforcer) driver() Driver { return checked{e.o.Driver, e.o.State} }

// alive reports whether a process lives, whatever the driver says.
func (e *Enforcer) alive(p rm.Process) bool {
	state, err := e.o.State(p)
	return err == nil && (state == Lives || state == Traced)
}

func (c checked) check(p rm.Process) error {
	state, err := c.state(p)
	if err == nil && (state == Gone || state == Exiting) {
		return rm.ErrGone
	}
	return err
}

func (c checked) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	if err := c.check(p); err != nil {
		return nil, err
	}
	return c.Driver.Find(ctx, p)
}

func (c checked) Slice(ctx context.Context, g rm.Group) (time.Duration, error) {
	if err := c.check(g.Process); err != nil {
		return 0, err
	}
	return c.Driver.Slice(ctx, g)
}

func (c checked) SetSlice(ctx context.Context, g rm.Group, d time.Duration) error {
	if err := c.check(g.Process); err != nil {
		return err
	}
	return c.Driver.SetSlice(ctx, g, d)
}

func (c checked) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	if err := c.checkAll(groups); err != nil {
		return err
	}
	return c.Driver.Switch(ctx, groups, on)
}

func (c checked) SwitchAsOne(ctx context.Context, groups []rm.Group, on bool) (time.Duration, error) {
	if err := c.checkAll(groups); err != nil {
		return 0, err
	}
	return c.Driver.SwitchAsOne(ctx, groups, on)
}

func (c checked) checkAll(groups []rm.Group) error {
	for _, g := range groups {
		if err := c.check(g.Process); err != nil {
			return err
		}
	}
	return nil
}
