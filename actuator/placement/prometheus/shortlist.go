package prometheus

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/placement"
)

// DefaultShortlist is how many nodes Shortlist reads by default. Whoever holds
// reservations asks for as many more as have some.
const DefaultShortlist = 8

// Shortlist returns what is known of the nodes that come first for this request,
// at most limit (≤ 0: DefaultShortlist); none if no node can take it. It is the
// query for a fleet: Prometheus orders the nodes, so that the facts of a few are
// read instead of all (at 10,000 nodes 400 series instead of half a million). The nodes
// are those that placement.Rank would put first; it, or whoever holds
// reservations, decides among them. Why the others are refused needs Nodes.
func (s *Source) Shortlist(ctx context.Context, req placement.Request, limit int) ([]placement.Node, error) {
	if limit <= 0 {
		limit = DefaultShortlist
	}
	best, err := s.querier.Query(ctx, ShortlistQuery(req, limit), time.Time{})
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	if len(best) == 0 {
		return nil, nil
	}
	names := make([]string, len(best))
	for i, sample := range best {
		names[i] = regexp.QuoteMeta(string(sample.Metric["node"]))
	}
	of := `,node=~` + strconv.Quote(strings.Join(names, "|")) + `}`
	// The same moment for both queries, or a node's order and its facts could be
	// of two evaluations.
	v, err := s.querier.Query(ctx, strings.TrimSuffix(Query, "}")+of, best[0].Timestamp.Time())
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return parse(v), nil
}

// ShortlistQuery is the instant query that names the first nodes for a request.
// A person can type it. The score is the free memory of the best provisionable
// GPU, so one comparison stands for both conditions.
func ShortlistQuery(req placement.Request, limit int) string {
	need := ` > 0`
	if req.GPUMemory > 0 {
		need = ` >= ` + strconv.FormatUint(req.GPUMemory, 10)
	}
	q := `node:rank:score` + need
	if req.Deadline > 0 {
		q += ` and node:float:seconds > ` + strconv.FormatFloat(float64(req.Deadline), 'g', -1, 64)
	}
	return fmt.Sprintf(`topk(%d, %s)`, limit, q)
}
