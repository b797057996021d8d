package actuator

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/webhook"
)

// openForward makes the forwarder, if other nodes are known.
func (a *Actuator) openForward() (err error) {
	if a.o.Peers == nil {
		return nil
	}
	a.forward, err = forward.New(forward.Options{
		Path: filepath.Join(a.o.StateDir, "forward.db"), Directory: a.o.Peers, DryRun: a.o.DryRun,
		MaxAge: a.o.Config.Lease, MaxAlerts: a.o.InboxSize,
		Decide: func(d decision.Decision) { a.decisions.Add(d) },
		Logger: a.log, Now: a.o.Now,
	})
	return err
}

// takeForward keeps what is about other nodes. rest is false when nothing is left
// for this one.
func (a *Actuator) takeForward(ctx context.Context, m webhook.Message) (_ webhook.Message, rest bool, err error) {
	if a.forward == nil || len(m.Alerts) == 0 {
		return m, true, nil
	}
	m, err = a.forward.Take(ctx, cmp.Or(a.o.Node, a.State().Node), m)
	return m, len(m.Alerts) > 0 || m.TruncatedAlerts > 0, err
}

// runForward delivers until stop is called, which waits for its end.
func (a *Actuator) runForward(ctx context.Context) (stop func()) {
	if a.forward == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := a.forward.Run(ctx); err != nil {
			a.log.Error("alerts about other nodes are not passed on", "err", err)
		}
	}()
	return func() { cancel(); <-ended }
}

func (a *Actuator) closeForward() error {
	if a.forward == nil {
		return nil
	}
	return a.forward.Close()
}
