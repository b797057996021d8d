package actuator

import (
	"cmp"
	"context"

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
		Directory: a.o.Peers, DryRun: a.o.DryRun, Decide: func(d decision.Decision) { a.decisions.Add(d) },
		Logger: a.log, Now: a.o.Now,
	})
	return err
}

// split returns the message with what is about this node, and the alerts about others.
func (a *Actuator) split(ctx context.Context, m webhook.Message) (webhook.Message, map[string][]webhook.Alert, error) {
	if a.forward == nil {
		return m, nil, nil
	}
	return a.forward.Split(ctx, cmp.Or(a.o.Node, a.State().Node), m)
}

// pass gives the alerts about other nodes to the actuators there.
func (a *Actuator) pass(ctx context.Context, m webhook.Message, others map[string][]webhook.Alert) error {
	if a.forward == nil {
		return nil
	}
	return a.forward.Pass(ctx, m, others)
}
