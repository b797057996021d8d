package bench

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
)

// Evaluator is the evaluator of `laxity up` with the repository's rules, as far
// as experiments use it. cmd/laxity-bench provides it, because no experiment may link
// PromQL.
type Evaluator interface {
	// Evaluate gathers, appends and evaluates the rules once. It says how long
	// the gathering and appending took, and how long the rules.
	Evaluate(ctx context.Context) (ingest, rules time.Duration, err error)
	// Query evaluates an instant query; the zero time is the latest evaluation.
	Query(ctx context.Context, expr string, at time.Time) (model.Vector, error)
	Close() error
}

// EvaluatorTarget is one set of metrics with its target labels.
type EvaluatorTarget struct {
	Gatherer            prometheus.Gatherer
	Job, Instance, Node string
}
