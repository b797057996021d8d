package prometheus

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/exporter/task"
)

// shortlist names the nodes that come first, and says what is known of the rest.
// Prometheus orders the nodes, so that the facts of a few are read instead of all:
// at 10,000 nodes 400 series instead of half a million. at is the moment for which
// it holds; zero when no node can take it.
func (s *Source) shortlist(ctx context.Context, l placer.List) (names []string, rest placement.Rest, at time.Time, err error) {
	v, err := s.querier.Query(ctx, ListQuery(l), time.Time{})
	if err != nil {
		return nil, rest, at, fmt.Errorf("placement: %w", err)
	}
	for _, sample := range v {
		names = append(names, string(sample.Metric["node"]))
		at = sample.Timestamp.Time()
	}
	return names, restOf(l, v), at, nil
}

// restOf says what a list leaves out: nothing, if it is not full.
func restOf(l placer.List, v model.Vector) placement.Rest {
	rest := placement.Rest{For: l.For}
	full := len(v) >= l.Limit
	least, most := math.Inf(1), math.Inf(-1)
	for _, s := range v {
		least, most = min(least, float64(s.Value)), max(most, float64(s.Value))
	}
	idle := l.Method == placement.Predictive && !l.Busy
	switch {
	case idle:
		rest.For.Deadline, rest.For.Estimate = 0, 0 // the query does not compare them
		if full {
			rest.Free = bytes(least)
		}
	case !full:
		rest.None, rest.Busy = true, l.Busy
	case !l.Busy:
		rest.Free = bytes(least)
	case l.For.Deadline > 0:
		rest.Busy, rest.Float = true, task.Seconds(least)
	default:
		rest.Busy, rest.Demand = true, task.Seconds(most)
	}
	return rest
}

// ListQuery is the instant query that names the first nodes for a request. A
// person can type it.
func ListQuery(l placer.List) string {
	switch {
	case l.Method != placement.Predictive:
		return paperQuery(l.For, l.Limit)
	case l.Busy:
		return busyQuery(l.For, l.Limit)
	default:
		return fmt.Sprintf(`topk(%d, node:memory_idle:bytes%s)`, l.Limit, needs(l.For, ""))
	}
}

// paperQuery is P2's master. The score is the free memory of the best
// provisionable GPU, so one comparison stands for both conditions.
func paperQuery(req placement.Request, limit int) string {
	q := `node:rank:score` + needs(req, ` > 0`)
	if req.Deadline > 0 {
		q += ` and node:float:seconds > ` + number(req.Deadline)
	}
	return fmt.Sprintf(`topk(%d, %s)`, limit, q)
}

// busyQuery finds, among all GPUs that may be used, where the new task would end
// with the most float, and without a deadline where there is the least work. The
// lines are explained in rules/README.md.
func busyQuery(req placement.Request, limit int) string {
	usable := ` and on (node, gpu) gpu_open == 1`
	if req.GPUMemory > 0 {
		usable += ` and on (node, gpu) gpu_memory_free_bytes` + needs(req, "")
	}
	usable += ` and on (node) node:fresh:bool == 1`
	if req.Deadline <= 0 {
		return fmt.Sprintf(`bottomk(%d, min by (node) (gpu_demand_seconds%s))`, limit, usable)
	}
	estimate := req.Estimate
	if estimate <= 0 {
		estimate = req.Deadline
	}
	return fmt.Sprintf(`topk(%[1]d, max by (node) (
  %[2]s - %[3]s - (sum by (node, gpu) (gpu_task_work_seconds and gpu_task_float_seconds <= %[2]s) or 0 * max by (node, gpu) (gpu_demand_seconds)) >= 0
   %[4]s
    unless on (node, gpu) (gpu_task_slack_seconds >= 0) < %[3]s * (gpu_task_float_seconds > bool %[2]s)
))`, limit, number(req.Deadline), number(estimate), usable)
}

func needs(req placement.Request, otherwise string) string {
	if req.GPUMemory == 0 {
		return otherwise
	}
	return ` >= ` + strconv.FormatUint(req.GPUMemory, 10)
}

func number(s task.Seconds) string { return strconv.FormatFloat(float64(s), 'g', -1, 64) }
