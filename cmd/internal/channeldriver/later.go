package channeldriver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/internal/rm"
)

// Later is Open for a program that may start before NVIDIA's driver, such as a guardian that starts
// with the machine: it opens the driver at the first call that finds one. Until then each call
// fails, and can be tried again.
func Later(device string) channels.Driver {
	return &later{open: func() channels.Driver { return Open(device) }}
}

type later struct {
	open func() channels.Driver

	mu     sync.Mutex
	driver channels.Driver
}

func (l *later) get() (channels.Driver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.driver == nil {
		l.driver = l.open()
	}
	if l.driver == nil {
		return nil, fmt.Errorf("%w: %s is not there", rm.ErrUnsupported, control)
	}
	return l.driver, nil
}

func (l *later) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	return d.Find(ctx, p)
}

func (l *later) Slice(ctx context.Context, g rm.Group) (time.Duration, error) {
	d, err := l.get()
	if err != nil {
		return 0, err
	}
	return d.Slice(ctx, g)
}

func (l *later) SetSlice(ctx context.Context, g rm.Group, slice time.Duration) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return d.SetSlice(ctx, g, slice)
}

func (l *later) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	d, err := l.get()
	if err != nil {
		return err
	}
	return d.Switch(ctx, groups, on)
}

func (l *later) SwitchAsOne(ctx context.Context, groups []rm.Group, on bool) (time.Duration, error) {
	d, err := l.get()
	if err != nil {
		return 0, err
	}
	return d.SwitchAsOne(ctx, groups, on)
}
