// Package prometheus gets the nodes' facts from the series that the exporters expose and
// the recording rules write, by PromQL: from a Prometheus server, from whatever answers its
// query API (Thanos, Mimir, a federating Prometheus), or from the engine inside
// `laxity up`. It imports actuator/placement, actuator/placement/placer, exporter/task,
// prometheus/common for the model, client_golang for the HTTP client, and the standard library.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
)

// Querier evaluates PromQL instant queries. The zero time is now. A partial
// result MUST be an error.
type Querier interface {
	Query(ctx context.Context, expr string, at time.Time) (model.Vector, error)
}

// Query selects every series that the decision reads. What it does without: the
// order and the comparison with a new deadline are made in placement.Rank, which
// also says why a node is refused. The query for a person is in rules/README.md.
const Query = `{__name__=~"` +
	`node:(seen:timestamp_seconds|fresh:bool|float:seconds)|` +
	`gpu_(info|open|memory_provisionable_bytes|memory_total_bytes|memory_free_bytes|utilization_ratio)|` +
	`gpu_task_(float|work)_seconds|gpu_container_memory_used_bytes"}`

// ErrNoNodes means that Prometheus answers and knows no node.
var ErrNoNodes = errors.New("prometheus has no node:… series")

// Source reads nodes by way of a Querier. It implements placement.Source and
// placer.Source.
type Source struct {
	querier Querier
	// size is how many nodes there are, as far as is known.
	size struct {
		sync.Mutex
		nodes int
		at    time.Time
	}
}

// NewSource makes a Source.
func NewSource(q Querier) *Source { return &Source{querier: q} }

// Nodes implements placement.Source.
func (s *Source) Nodes(ctx context.Context) ([]placement.Node, error) {
	v, err := s.querier.Query(ctx, Query, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return known(v)
}

func known(v model.Vector) ([]placement.Node, error) {
	nodes := parse(v)
	if len(nodes) == 0 {
		return nil, errNone()
	}
	return nodes, nil
}

func errNone() error {
	return fmt.Errorf("placement: %w: check that it loads rules/recording.yml, and that it scrapes the exporters with a target label `node`", ErrNoNodes)
}

// someKnown returns an error that wraps ErrNoNodes where no node is known: a Prometheus that has just
// begun knows nothing of those that were asked for, and that says nothing of them.
func (s *Source) someKnown(ctx context.Context) error {
	n, err := s.count(ctx)
	if err == nil && n == 0 {
		err = errNone()
	}
	return err
}

// count is how many nodes are known.
func (s *Source) count(ctx context.Context) (int, error) {
	v, err := s.querier.Query(ctx, `count(node:seen:timestamp_seconds)`, time.Time{})
	if err != nil {
		return 0, fmt.Errorf("placement: %w", err)
	}
	if len(v) == 0 {
		return 0, nil
	}
	return int(v[0].Value), nil
}
