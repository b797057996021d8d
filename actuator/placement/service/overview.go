package service

import (
	"context"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
)

// Overview is the ranking for a container without demands, with the reservations taken off, and
// the reservations themselves. The actuator's page shows it.
func (s *Service) Overview(ctx context.Context) placement.Overview {
	out := placement.Overview{Known: true, Method: s.placer.Method()}
	var err error
	if out.Nodes, err = s.placer.Explain(ctx, placer.Request{}); err != nil {
		out.Error = err.Error()
	}
	for _, e := range s.placer.List() {
		out.Reservations = append(out.Reservations, placement.Reservation{
			ID: e.ID, Node: e.Node, GPU: e.GPU, State: string(e.State), Memory: e.Memory, Deadline: e.Deadline, Expires: e.Expires,
		})
	}
	return out
}
