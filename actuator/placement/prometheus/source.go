// Package prometheus gets the nodes' facts from the series that the recording
// rules write, by PromQL: from a Prometheus server, from whatever answers its
// query API (Thanos, Mimir, a federating Prometheus), or from the engine inside
// `laxity up`. It imports prometheus/common for the model, and client_golang for
// the HTTP client.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
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
	`node:(seen:timestamp_seconds|fresh:bool|provisionable:bool|float:seconds|memory_free:bytes|rank:score)|` +
	`node_gpu:(provisionable:bool|float:seconds|memory_free:bytes|utilization:ratio|deadline_missed:timestamp_seconds|rank:score)"}`

// ErrNoNodes means that Prometheus answers and knows no node.
var ErrNoNodes = errors.New("prometheus has no node:… series")

// Source reads nodes by way of a Querier. It implements placement.Source.
type Source struct{ querier Querier }

// NewSource makes a Source.
func NewSource(q Querier) *Source { return &Source{querier: q} }

// Nodes implements placement.Source.
func (s *Source) Nodes(ctx context.Context) ([]placement.Node, error) {
	v, err := s.querier.Query(ctx, Query, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	if len(v) == 0 {
		return nil, fmt.Errorf("placement: %w: check that it loads rules/recording.yml, and that it scrapes the exporters with a target label `node`", ErrNoNodes)
	}
	return parse(v), nil
}

// parse makes nodes of the recorded series, in the order of their names. Series
// of other names are ignored; a missing one leaves what means "not a candidate".
func parse(v model.Vector) []placement.Node {
	nodes := map[string]*placement.Node{}
	gpus := map[[2]string]*placement.GPU{}
	for _, s := range v {
		level, fact, _ := strings.Cut(string(s.Metric[model.MetricNameLabel]), ":")
		name := string(s.Metric["node"])
		n := nodes[name]
		if n == nil {
			n = &placement.Node{Name: name, Float: task.Seconds(math.Inf(1))}
			nodes[name] = n
		}
		switch level {
		case "node":
			setNode(n, fact, float64(s.Value))
		case "node_gpu":
			key := [2]string{name, string(s.Metric["gpu"])}
			g := gpus[key]
			if g == nil {
				g = &placement.GPU{UUID: key[1], Float: task.Seconds(math.Inf(1)), Utilization: task.Seconds(math.NaN())}
				gpus[key] = g
			}
			setGPU(g, fact, float64(s.Value))
		}
	}
	for key, g := range gpus {
		nodes[key[0]].GPUs = append(nodes[key[0]].GPUs, *g)
	}
	out := make([]placement.Node, 0, len(nodes))
	for _, n := range nodes {
		slices.SortFunc(n.GPUs, func(a, b placement.GPU) int { return strings.Compare(a.UUID, b.UUID) })
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b placement.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func setNode(n *placement.Node, fact string, v float64) {
	switch fact {
	case "seen:timestamp_seconds":
		n.Seen = moment(v)
	case "fresh:bool":
		n.Fresh = v == 1
	case "provisionable:bool":
		n.Provisionable = v == 1
	case "float:seconds":
		n.Float = task.Seconds(v)
	case "memory_free:bytes":
		n.MemoryFree = bytes(v)
	case "rank:score":
		n.Score = v
	}
}

func setGPU(g *placement.GPU, fact string, v float64) {
	switch fact {
	case "provisionable:bool":
		g.Provisionable = v == 1
	case "float:seconds":
		g.Float = task.Seconds(v)
	case "memory_free:bytes":
		g.MemoryFree = bytes(v)
	case "utilization:ratio":
		g.Utilization = task.Seconds(v)
	case "deadline_missed:timestamp_seconds":
		g.Missed = moment(v)
	case "rank:score":
		g.Score = v
	}
}

func moment(v float64) time.Time {
	if math.IsNaN(v) || v <= 0 || v > math.MaxInt64/1000 {
		return time.Time{}
	}
	return time.UnixMilli(int64(v * 1000))
}

func bytes(v float64) uint64 {
	if !(v > 0) {
		return 0
	}
	return uint64(min(v, math.MaxInt64))
}
