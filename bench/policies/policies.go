// Package policies compares the policies with pauses, on a GPU that is simulated in virtual time. The
// plan and the orders are real; there is no container and no wall clock. CI can run it; package
// arbitrate measures the same on a real GPU.
package policies

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laxity/laxity/bench"
)

const about = `Virtual time, simulated GPU (time slicing as measured on an H200), the actuator's own plan and
policies. Docker pauses a waiting container once its task is seen, and the next one continues when a task ends.
Sets: deadlines = 8 large tasks in shuffled order, the deadline of the i-th 1.1 × (time alone +
(i−1) × kernel time) + 0.5 s; mixed = 60 tasks of sizes 1:10, random arrivals, load 0.8, deadline
4 × time alone + 1 s; small = 20 tasks of 90 ms of kernels; idle = 5 tasks that use 13 % of the
GPU each (P2, Fig. 4); random = sets of 2–8 random tasks all of whose deadlines can be met.`

// Experiment is the simulated comparison of policies.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "policies", Title: "Policies with pauses, simulated", About: about,
		Run: run, Figures: figures, Table: table,
	}
}

var (
	none = way{policy: "none"}
	fifo = way{policy: "fifo"}
	edf  = way{policy: "edf"}
	ways = []way{none, fifo, {policy: "p3"}, edf, {policy: "llf"}}
)

// set is a kind of workload.
type set struct {
	name string
	make func(*rand.Rand) []job
}

var sets = []set{
	{"deadlines", deadlines},
	{"mixed", func(r *rand.Rand) []job { return mixed(r, 60, 0.8) }},
	{"small", small},
	{"idle", idle},
}

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	repeats, random := 5, 1000
	if env.Quick {
		repeats, random = 2, 50
	}
	var rows []bench.Row
	for _, s := range sets {
		for i := range repeats {
			jobs := s.make(rand.New(rand.NewPCG(env.Seed, uint64(i)))) //nolint:gosec // not a secret
			for _, w := range ways {
				if err := ctx.Err(); err != nil {
					return rows, err
				}
				rows = append(rows, sampleRow(s.name, w, i+1, jobs, simulate(jobs, w)))
			}
		}
		env.Log("set %s: %d repeats", s.name, repeats)
	}
	for i := range random {
		if err := ctx.Err(); err != nil {
			return rows, err
		}
		jobs := feasible(rand.New(rand.NewPCG(env.Seed, uint64(1000+i)))) //nolint:gosec // not a secret
		rows = append(rows, bench.Row{"set": "random", "run": i + 1, "tasks": len(jobs),
			"edf_hits": hits(jobs, simulate(jobs, edf)), "fifo_hits": hits(jobs, simulate(jobs, fifo)), "none_hits": hits(jobs, simulate(jobs, none))})
	}
	return rows, nil
}

// sampleRow is what one way made of one set.
func sampleRow(set string, w way, run int, jobs []job, ends []time.Duration) bench.Row {
	makespan, turnaround := 0.0, 0.0
	for i, end := range ends {
		makespan = max(makespan, end.Seconds())
		turnaround += (end - jobs[i].arrive).Seconds() / float64(len(jobs))
	}
	return bench.Row{"set": set, "way": w.name(), "run": run, "tasks": len(jobs), "hits": hits(jobs, ends),
		"makespan_s": makespan, "turnaround_s": turnaround}
}

func hits(jobs []job, ends []time.Duration) (n int) {
	for i, j := range jobs {
		if ends[i] <= j.arrive+j.deadline {
			n++
		}
	}
	return n
}

// summary is what a way made of a set: means over its runs.
type summary struct {
	makespan, turnaround float64
	hits, tasks          float64 // of all runs
	worst, perRun        float64 // hits in the worst run, of how many
	runs                 int
}

func summarize(rows []bench.Row, set, way string) summary {
	keep := func(r bench.Row) bool { return r.Str("set") == set && r.Str("way") == way }
	hits, tasks := bench.Column(rows, "hits", keep), bench.Column(rows, "tasks", keep)
	s := summary{
		makespan:   bench.Mean(bench.Column(rows, "makespan_s", keep)),
		turnaround: bench.Mean(bench.Column(rows, "turnaround_s", keep)),
		worst:      bench.Quantile(hits, 0), perRun: bench.Quantile(tasks, 0), runs: len(hits),
	}
	for i := range hits {
		s.hits, s.tasks = s.hits+hits[i], s.tasks+tasks[i]
	}
	return s
}

func figures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	add := func(name, unit string, v, base float64, against string, n int) {
		f := bench.Figure{Name: name, Value: v, Unit: unit, Runs: n}
		if against != "" {
			f.Against, f.Ratio = against, v/base
		}
		out = append(out, f)
	}
	for _, w := range ways {
		s := summarize(rows, "deadlines", w.name())
		add("sim_deadline_hits_worst_of_8: "+w.name(), "tasks", s.worst, 0, "", s.runs)
	}
	for _, set := range []string{"deadlines", "mixed", "small", "idle"} {
		base := summarize(rows, set, none.name())
		s := summarize(rows, set, edf.name())
		add("sim_makespan_"+set, "s", s.makespan, base.makespan, "default time slicing", s.runs)
		add("sim_turnaround_"+set, "s", s.turnaround, base.turnaround, "default time slicing", s.runs)
	}
	for _, w := range ways {
		s, base := summarize(rows, "mixed", w.name()), summarize(rows, "mixed", none.name())
		add("sim_mixed_hit_ratio: "+w.name(), "", s.hits/s.tasks, base.hits/base.tasks, "default time slicing", int(s.tasks))
	}
	worse, missed, n := 0.0, 0.0, 0 // of the sets all of whose deadlines can be met
	for _, r := range rows {
		if r.Str("set") == "random" {
			n++
			if r.Num("edf_hits") < r.Num("fifo_hits") {
				worse++
			}
			missed += r.Num("tasks") - r.Num("edf_hits")
		}
	}
	add("sim_random_edf_worse_than_fifo", "sets", worse, 0, "", n)
	add("sim_random_edf_missed", "tasks", missed, 0, "", n)
	return out
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"SET", "WAY", "HIT", "WORST RUN", "MAKESPAN s", "× none", "MEAN TURNAROUND s", "× none"}}
	for _, s := range sets {
		base := summarize(rows, s.name, none.name())
		for _, w := range ways {
			m := summarize(rows, s.name, w.name())
			if m.runs == 0 {
				continue
			}
			hit, worst := "", ""
			if s.name == "deadlines" || s.name == "mixed" {
				hit, worst = fmt.Sprintf("%.0f of %.0f", m.hits, m.tasks), fmt.Sprintf("%.0f of %.0f", m.worst, m.perRun)
			}
			lines = append(lines, []string{s.name, w.name(), hit, worst,
				bench.Number(m.makespan), fmt.Sprintf("%.2f", m.makespan/base.makespan),
				bench.Number(m.turnaround), fmt.Sprintf("%.2f", m.turnaround/base.turnaround)})
		}
	}
	for _, way := range []string{"none", "fifo", "edf"} {
		got, all := 0.0, 0.0
		for _, r := range rows {
			if r.Str("set") == "random" {
				got += r.Num(way + "_hits")
				all += r.Num("tasks")
			}
		}
		if all > 0 {
			name := way
			if way != "none" {
				name += ", pause"
			}
			lines = append(lines, []string{"random", name, fmt.Sprintf("%.0f of %.0f", got, all), "", "", "", "", ""})
		}
	}
	return lines
}
