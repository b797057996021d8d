package events

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/papers"
	"github.com/laxity/laxity/exporter/task"
)

// rows puts what was seen beside what the tasks stamped: one row for each task
// and way. A task that a way did not see has no errors in its row.
func rows(truths []truth, s *task.Snapshot, sightings []papers.Sighting, took []time.Duration) ([]bench.Row, error) {
	var out []bench.Row
	var errs []error
	index := map[string]string{}
	for _, g := range s.GPUs {
		index[g.UUID] = strconv.Itoa(g.Index)
	}
	for _, t := range truths {
		if t.err != nil {
			errs = append(errs, t.err)
			continue
		}
		ours := newRow(laxity, t)
		for _, e := range s.Ended {
			if e.Container != t.name || e.End == nil {
				continue
			}
			ours.seen(t, e.Start.Time, e.End.Time)
			ours["start_source"], ours["end_source"] = string(e.Start.Source), string(e.End.Source)
			ours["start_bound_s"] = float64(e.Start.ErrorBound)
			ours["tasks"] = ours.Row().Num("tasks") + 1
			ours["right_gpu"] = len(e.GPUs) == 1 && index[e.GPUs[0]] == t.gpu
			ours["gpu_known"] = len(e.GPUs) > 0 && e.GPUs[0] != task.UnknownGPU
		}
		theirs := newRow(passes, t)
		for _, sight := range sightings {
			if sight.Container == t.name && !sight.End.IsZero() {
				theirs.seen(t, sight.Start, sight.End)
				theirs["tasks"] = theirs.Row().Num("tasks") + 1
			}
		}
		out = append(out, ours.Row(), theirs.Row())
	}
	for _, d := range took {
		out = append(out, bench.Row{"way": passes, "kind": "pass", "pass_s": d.Seconds()})
	}
	if len(errs) > 0 {
		return out, fmt.Errorf("%d of %d tasks failed: %w", len(errs), len(truths), errors.Join(errs[:min(3, len(errs))]...))
	}
	return out, nil
}

type row bench.Row

func newRow(way string, t truth) row {
	release := "exit"
	if t.destroys {
		release = "destroy"
	}
	return row{"way": way, "kind": "task", "task": t.name, "release": release,
		"start": unix(t.start), "end": unix(t.end), "run_s": t.end.Sub(t.start).Seconds(), "tasks": 0.0}
}

func (r row) Row() bench.Row { return bench.Row(r) }

func (r row) seen(t truth, start, end time.Time) {
	r["start_error_s"] = start.Sub(t.start).Seconds()
	r["end_error_s"] = end.Sub(t.end).Seconds()
	r["run_error_s"] = end.Sub(start).Seconds() - t.end.Sub(t.start).Seconds()
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// sizes are the errors of a way without their signs, seconds, of those that end so; release empty: of all.
func sizes(rs []bench.Row, way, key, release string) (all []float64) {
	for _, r := range rs {
		if x := r.Num(key); r.Str("way") == way && !math.IsNaN(x) && (release == "" || r.Str("release") == release) {
			all = append(all, math.Abs(x))
		}
	}
	return all
}

func figures(rs []bench.Row) []bench.Figure {
	var out []bench.Figure
	add := func(name, key, release string, of func([]float64) float64) {
		ours, theirs := sizes(rs, laxity, key, release), sizes(rs, passes, key, release)
		v, base := 1000*of(ours), 1000*of(theirs)
		out = append(out, bench.Figure{Name: name, Value: v, Unit: "ms", Against: passes, Ratio: v / base, Runs: len(ours)})
	}
	add("start_error_median_ms", "start_error_s", "", bench.Median)
	add("start_error_p99_ms", "start_error_s", "", bench.P99)
	add("end_error_median_ms", "end_error_s", "destroy", bench.Median)
	add("end_error_p99_ms", "end_error_s", "destroy", bench.P99)
	add("end_error_at_exit_median_ms", "end_error_s", "exit", bench.Median)
	add("end_error_at_exit_p99_ms", "end_error_s", "exit", bench.P99)
	outside, bounded := 0.0, 0
	for _, r := range rs {
		if bound := r.Num("start_bound_s"); r.Str("way") == laxity && bound > 0 {
			bounded++
			if math.Abs(r.Num("start_error_s")) > bound {
				outside++
			}
		}
	}
	out = append(out, bench.Figure{Name: "starts_outside_their_bound", Value: outside, Unit: "tasks", Runs: bounded})
	for _, way := range []string{laxity, passes} {
		missed, n := 0.0, 0
		for _, r := range rs {
			if r.Str("way") == way && r.Str("kind") == "task" {
				n++
				if r.Num("tasks") < 1 {
					missed++
				}
			}
		}
		name := "missed_tasks"
		if way == passes {
			name += "_papers"
		}
		out = append(out, bench.Figure{Name: name, Value: missed, Unit: "tasks", Runs: n})
	}
	wrong, known, n := 0.0, 0.0, 0
	for _, r := range rs {
		if r.Str("way") == laxity && r.Num("tasks") >= 1 {
			n++
			known += r.Num("gpu_known")
			if r.Num("gpu_known") == 1 && r.Num("right_gpu") == 0 {
				wrong++
			}
		}
	}
	out = append(out,
		bench.Figure{Name: "wrong_gpu_tasks", Value: wrong, Unit: "tasks", Runs: n},
		bench.Figure{Name: "unknown_gpu_tasks", Value: float64(n) - known, Unit: "tasks", Runs: n})
	right, shown := 0.0, 0
	for _, r := range rs {
		if r.Str("kind") == "shape" {
			shown++
			right += r.Num("right")
		}
	}
	if shown > 0 {
		out = append(out, bench.Figure{Name: "several_processes_or_gpus_right", Value: right, Unit: "containers", Runs: shown})
	}
	return out
}

func table(rs []bench.Row) [][]string {
	lines := [][]string{{"WAY", "ERROR OF", "MEDIAN ms", "p90", "p99", "MAX", "SEEN"}}
	for _, way := range []string{laxity, passes} {
		for _, what := range []struct{ label, key, release string }{
			{"start", "start_error_s", ""}, {"end, context destroyed", "end_error_s", "destroy"},
			{"end, at exit", "end_error_s", "exit"}, {"run time, context destroyed", "run_error_s", "destroy"},
		} {
			var v []float64
			all := 0
			for _, r := range rs {
				if r.Str("way") != way || r.Str("kind") != "task" || what.release != "" && r.Str("release") != what.release {
					continue
				}
				all++
				if x := r.Num(what.key); !math.IsNaN(x) {
					v = append(v, 1000*math.Abs(x))
				}
			}
			lines = append(lines, []string{way, what.label,
				bench.Number(bench.Median(v)), bench.Number(bench.Quantile(v, 0.9)),
				bench.Number(bench.P99(v)), bench.Number(bench.Max(v)),
				fmt.Sprintf("%d of %d", len(v), all)})
		}
	}
	return lines
}
