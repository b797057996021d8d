package prometheus

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/exporter/task"
)

var _ placer.Source = (*Source)(nil)

// Small is up to how many nodes a fleet is read whole: one query then tells more
// than two, and every answer has the reasons of all nodes.
const Small = 32

// recount is how often a larger fleet is counted.
const recount = time.Minute

// Facts implements placer.Source.
func (s *Source) Facts(ctx context.Context, ask placer.Ask) (placer.Facts, error) {
	if !ask.All && ask.List != nil {
		small, err := s.small(ctx)
		if err != nil {
			return placer.Facts{}, err
		}
		ask.All = small
	}
	if ask.All {
		v, err := s.read(ctx, nil, ask.Containers, time.Time{})
		if err != nil {
			return placer.Facts{}, err
		}
		nodes, err := known(v)
		s.counted(len(nodes))
		return placer.Facts{Nodes: nodes, Tenants: tenants(v)}, err
	}
	names, rest := ask.Nodes, placement.Rest{Free: math.MaxUint64}
	var at time.Time
	if ask.List != nil {
		var first []string
		var err error
		if first, rest, at, err = s.shortlist(ctx, *ask.List); err != nil {
			return placer.Facts{}, err
		}
		names = slices.Concat(names, first)
	}
	if len(names) == 0 {
		return placer.Facts{Rest: &rest}, s.someKnown(ctx)
	}
	// The same moment for both queries, or a node's order and its facts could be
	// of two evaluations.
	v, err := s.read(ctx, names, ask.Containers, at)
	if err != nil {
		return placer.Facts{}, err
	}
	nodes := parse(v)
	if len(nodes) == 0 {
		err = s.someKnown(ctx)
	}
	return placer.Facts{Nodes: nodes, Tenants: tenants(v), Rest: &rest}, err
}

// read selects the facts of these nodes, nil for all, and of those of the
// containers that are on them.
func (s *Source) read(ctx context.Context, names []string, containers map[string][]string, at time.Time) (model.Vector, error) {
	expr := Query
	if names != nil {
		expr = strings.TrimSuffix(Query, "}") + `,node=~` + anyOf(names) + `}`
	}
	if of := tenantsOn(names, containers); of != "" {
		expr += "\nor " + of
	}
	v, err := s.querier.Query(ctx, expr, at)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return v, nil
}

// anyOf is a quoted regular expression that matches these, whatever is in them.
func anyOf(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = regexp.QuoteMeta(text)
	}
	slices.Sort(quoted)
	return strconv.Quote(strings.Join(slices.Compact(quoted), "|"))
}

// small reports whether the fleet is read whole.
func (s *Source) small(ctx context.Context) (bool, error) {
	s.size.Lock()
	n, at := s.size.nodes, s.size.at
	s.size.Unlock()
	if n > 0 && (n <= Small || time.Since(at) < recount) {
		return n <= Small, nil
	}
	counted, err := s.count(ctx)
	if err != nil {
		return false, err
	}
	if counted > 0 { // else the count of before is the better guess
		n = counted
	}
	s.counted(n)
	return n <= Small, nil
}

func (s *Source) counted(nodes int) {
	s.size.Lock()
	defer s.size.Unlock()
	s.size.nodes, s.size.at = nodes, time.Now()
}

// Estimate implements placer.Source: the longest last task of the image's
// containers, on any node. The image may be named as any engine names it.
func (s *Source) Estimate(ctx context.Context, image string) (task.Seconds, error) {
	v, err := s.querier.Query(ctx, `max(image:task_duration:seconds{image=`+strconv.Quote(task.ImageName(image))+`})`, time.Time{})
	if err != nil {
		return 0, fmt.Errorf("placement: %w", err)
	}
	if len(v) == 0 {
		return 0, nil
	}
	return max(0, task.Seconds(v[0].Value)), nil
}
