package view

import (
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// FactsOf puts together what the page shows. With changes, settings of containers can be changed.
func FactsOf(s *state.State, snapshot *task.Snapshot, decisions []decision.Decision, changes bool) Facts {
	f := Facts{
		Service: Service{
			Node: s.Node, Ready: s.Ready, Policy: s.Policy, Share: s.Share, Arbitrate: string(s.Arbitrate),
			Trouble: s.Trouble, Standby: s.Standby, Breaker: s.Breaker,
			DryRun: s.DryRun, GuardianUp: s.GuardianUp, Drained: s.Drained, Inbox: s.Inbox,
		},
		Changes: changes, Snapshot: snapshot, Decisions: decisions,
		GPUs: map[string]Arbitration{}, Standings: map[string]Standing{},
	}
	for _, g := range s.GPUs {
		f.GPUs[g.UUID] = Arbitration{Open: g.Arbitrated, Relieve: g.Relieve, Admitted: g.Admitted, Queue: g.Queue, Order: g.Order, Unkept: g.Unkept}
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
		f.Standings[c.ID] = Standing{
			Managed: c.Managed, Ours: c.Standing == plan.Ours, Somebody: c.Standing == plan.Somebody,
			Waits: c.Waits, Order: c.Order, Off: c.Off, Unmet: c.DeadlineUnmet, Until: until[c.ID], Asked: asked[c.ID],
		}
	}
	return f
}
