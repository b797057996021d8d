package chain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	prom "github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/dashboards"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
)

// question is a query of a dashboard, and whom it is asked.
type question struct {
	query  dashboards.Query
	native bool
}

// questions are those that have no answer yet.
type questions map[question]bool

func (q questions) err() error {
	var errs []error
	for one := range q {
		errs = append(errs, fmt.Errorf("%s: %s: no answer (native histograms: %v): %s", one.query.File, one.query.Panel, one.native, one.query.Expr))
	}
	return errors.Join(errs...)
}

// elsewhere are the series that a run with pauses has not, and why: their queries parse there.
var elsewhere = []string{
	"laxity_actuator_memory_",              // nobody guards memory
	"laxity_actuator_slice_seconds",        // it pauses; the test below slices
	"laxity_actuator_channel_call_seconds", // of NVIDIA's resource manager
	"gpu_nvlink_bytes_total",               // a simulated card has no NVLink
}

// afterAnEnd are the series that are there once a task has ended, or the GPU is idle, and those whose
// rate needs an action after the first one.
var afterAnEnd = []string{
	"laxity_actuator_snapshot_to_action_seconds",
	"gpu_task_last_", "gpu_tasks_completed_total", "node:memory_idle:bytes", "node:float:seconds",
	"gpu_task_duration_seconds", "gpu_task_held_seconds", "gpu_task_tardiness_seconds",
}

// without returns the questions that ask for none of these series.
func (q questions) without(series []string) questions {
	rest := questions{}
	for one := range q {
		if !asksFor(one.query, series) {
			rest[one] = true
		}
	}
	return rest
}

func asksFor(q dashboards.Query, series []string) bool {
	return slices.ContainsFunc(series, func(name string) bool { return strings.Contains(q.Expr, name) })
}

// unanswered asks Prometheus every query of the dashboards, or only those given, and returns the
// ones that have no answer now. An answer is a number: NaN is none.
func (s *stack) unanswered(t *testing.T, only questions) questions {
	t.Helper()
	all, err := dashboards.Read()
	if err != nil {
		t.Fatal(err)
	}
	open := questions{}
	for file, d := range all {
		for _, q := range d.Queries(file) {
			for native, client := range map[bool]*prom.Client{false: s.query, true: s.native} {
				if native && !strings.Contains(q.Expr, "histogram_quantile") || only != nil && !only[question{q, native}] {
					continue
				}
				v, err := client.Query(t.Context(), q.Expr, time.Time{})
				if err != nil {
					t.Errorf("%s: %s: %v", file, q.Panel, err)
				}
				if asksFor(q, elsewhere) {
					continue
				}
				if !slices.ContainsFunc(v, func(s *model.Sample) bool { return !math.IsNaN(float64(s.Value)) }) {
					open[question{q, native}] = true
				}
				labelled(t, q, v)
			}
		}
	}
	return open
}

// labelled checks that an answer has the labels that its panel's links are made of.
func labelled(t *testing.T, q dashboards.Query, v model.Vector) {
	t.Helper()
	for label := range strings.FieldsSeq(q.Linked) {
		if len(v) > 0 && !slices.ContainsFunc(v, func(s *model.Sample) bool { return s.Metric[model.LabelName(label)] != "" }) {
			t.Errorf("%s: %s: the answer has no label %s for its link: %s", q.File, q.Panel, label, v[0].Metric)
		}
	}
}

// Where time is divided by slices, the dashboards say who has which, and who comes first.
func TestSlicesAreOnTheDashboards(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Docker and Prometheus; not with -short")
	}
	docker := simtest.Docker(t)
	s := startStack(t, "--policy=edf", "--hold=channels")
	image := simtest.Image(t, docker)
	for _, deadline := range []string{"10m", "20m"} {
		c := s.gpu.StartContainer(t, docker, simtest.Spec{Image: image, Args: []string{"--n", "512", "--kernels", "2", "--repeat", "0"},
			Labels: map[string]string{"laxity.deadline": deadline}})
		seen(t, s, c.Name)
	}
	open := questions{}
	all, err := dashboards.Read()
	if err != nil {
		t.Fatal(err)
	}
	for file, d := range all {
		for _, q := range d.Queries(file) {
			if strings.Contains(q.Expr, "laxity_actuator_slice_seconds") || strings.Contains(q.Expr, "laxity_actuator_queue_place") {
				open[question{query: q}] = true
			}
		}
	}
	if len(open) < 4 {
		t.Fatalf("%d queries about slices and places", len(open))
	}
	for q := range open {
		until(t, q.query.File+": "+q.query.Panel, func(ctx context.Context) error {
			v, err := s.query.Query(ctx, q.query.Expr, time.Time{})
			if err == nil && len(v) == 0 {
				err = fmt.Errorf("no answer: %s", q.query.Expr)
			}
			return err
		})
	}
}
