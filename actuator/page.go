package actuator

import (
	"context"
	"time"

	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/page"
	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/source"
)

// openPage makes the live page.
func (a *Actuator) openPage() (err error) {
	a.page, err = page.New(page.Options{Facts: a.pageFacts, Guard: a.access, Actor: a, Ranking: a.o.Ranking, Logger: a.log, Now: a.o.Now})
	return err
}

// runPage has the page remember until stop is called, which waits for its end.
func (a *Actuator) runPage(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); a.page.Run(ctx) }()
	return func() { cancel(); <-ended }
}

// pageFacts is what is published, in the page's terms.
func (a *Actuator) pageFacts() view.Facts {
	s := a.State()
	_, deadlines := a.o.Source.(source.DeadlineSetter)
	f := view.Facts{
		Service: view.Service{
			Node: s.Node, Ready: s.Ready, Policy: s.Policy, Share: s.Share, Arbitrate: string(s.Arbitrate),
			Trouble: s.Trouble, Standby: s.Standby, Breaker: s.Breaker,
			DryRun: s.DryRun, GuardianUp: s.GuardianUp, Drained: s.Drained, Inbox: s.Inbox,
		},
		Deadlines: deadlines, Snapshot: a.arbiter.Snapshot(),
		GPUs: map[string]view.Arbitration{}, Standings: map[string]view.Standing{},
	}
	f.Decisions, _ = a.decisions.Last(0)
	for _, g := range s.GPUs {
		f.GPUs[g.UUID] = view.Arbitration{Open: g.Arbitrated, Relieve: g.Relieve, Admitted: g.Admitted, Queue: g.Queue, Order: g.Order}
	}
	until := map[string]time.Time{}
	for _, h := range s.Holds {
		until[h.ContainerID] = h.Until
	}
	asked := map[string]string{}
	for _, l := range s.Leases {
		if l.Wish == lease.Pause && l.By != "" {
			asked[l.Target] = l.By
		}
	}
	for _, c := range s.Containers {
		f.Standings[c.ID] = view.Standing{
			Managed: c.Managed, Ours: c.Standing == plan.Ours, Somebody: c.Standing == plan.Somebody,
			Waits: c.Waits, Order: c.Order, Off: c.Off, Until: until[c.ID], Asked: asked[c.ID],
		}
	}
	return f
}
