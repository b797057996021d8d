package service

import (
	"context"

	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/placement/placer"
)

// Overview is the ranking for a container without demands, promises taken off,
// and the promises themselves, for the actuator's page.
func (s *Service) Overview(ctx context.Context) view.Ranking {
	out := view.Ranking{Known: true, Method: string(s.placer.Method())}
	var err error
	if out.Nodes, err = s.placer.Explain(ctx, placer.Request{}); err != nil {
		out.Error = err.Error()
	}
	for _, e := range s.placer.List() {
		out.Reservations = append(out.Reservations, view.Reservation{
			ID: e.ID, Node: e.Node, GPU: e.GPU, State: string(e.State), Memory: e.Memory, Deadline: e.Deadline, Expires: e.Expires,
		})
	}
	return out
}
