package arbitrate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
)

const aboutPaper = `P3's own experiment at its sizes, on the card that is here: equal containers, each of which makes two square matrices,
copies them to the GPU, multiplies them and copies the result back; 19456² in 1, 2, 5 containers, 13312² in 1, 5, 10 and 8192² in
1, 5, 20. Today's cards multiply faster than they copy, so the product is repeated until kernels are nine tenths of a lone
task, as on the paper's card; how often is measured once, and kept for all runs of a result. Ways: default is time slicing, p3 the
paper's algorithm by Docker pause, laxity as it is shipped (time slices; nobody has a deadline here), mps NVIDIA's MPS. N × lone, which the paper
compares with, is N times the time of one container alone; one runs them one after another, once, to check that. Input is from the
start to the first launch, output from the last kernel's end to the end. All times are those that the programs stamp themselves.
The median of the runs of each way; in each run every way, in turn.`

// filled is the part of a lone task that its kernels are.
const filled = 0.9

func paperSets() []set {
	of := func(n int, counts ...int) set {
		return set{name: fmt.Sprint(n), kinds: []kind{{n: n, kernels: 1}}, counts: counts, filled: true, asShipped: true}
	}
	return []set{of(19456, 1, 2, 5), of(13312, 1, 5, 10), of(8192, 1, 5, 20)}
}

// Paper is the contention that P3 shows, and what its algorithm and ours do about it.
func Paper() bench.Experiment {
	return bench.Experiment{
		Name: "contention", Title: "Contention and turns at the paper's sizes (P3, Figs 2–4 and 7–9, Table 1)", About: aboutPaper,
		Settings: []bench.Setting{
			{Name: "sets", Means: "the sizes, as 8192,13312; all", Part: true},
			{Name: "ways", Means: "some of default,p3,laxity,mps,one; all"},
			{Name: "counts", Means: "of a size's numbers of containers the lowest, middle, highest, one by its number, or all; all", Part: true},
			{Name: "repeats", Means: "runs of each; 3", Part: true},
			{Name: "limit", Means: "how long after the start another run may begin; 8m", Part: true},
			{Name: "verbose", Means: "any value: the actuator's log on the standard error", Part: true},
		},
		Portions: true, Run: runPaper, Figures: paperFigures, Table: paperTable,
	}
}

func runPaper(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	how := settings{sets: paperSets(), known: paperSets(), repeats: 3, limit: 8 * time.Minute, hold: "auto"}
	if env.Quick {
		how.repeats, how.sets = 1, how.sets[2:]
		how.sets[0].counts = []int{1, 3}
	}
	how, err := parse(how, env)
	if err != nil {
		return nil, err
	}
	return measureSets(ctx, env, how)
}

// fill finds how many kernels are nine tenths of a lone task; an earlier portion of the result has found it.
func (m *measurement) fill(ctx context.Context, s set) (kernels int, err error) {
	for _, r := range m.env.Earlier {
		if r.Str("set") == s.name {
			return int(r.Num("kernels")), nil
		}
	}
	a, err := m.alone(ctx, s.kinds[0])
	if err != nil {
		return 0, err
	}
	kernels = kernelsFor(a)
	m.env.Log("%s: one product takes %.3fs, all else of a lone task %.2fs: %d products each", s.name, a.kernels, a.took-a.kernels, kernels)
	return kernels, nil
}

// kernelsFor is how many kernels fill a task of which one kernel is measured.
func kernelsFor(a alone) int {
	return max(1, int(math.Ceil(filled/(1-filled)*(a.took-a.kernels)/a.kernels)))
}

// filledWays are all, but for one after another, which one run of the highest count checks.
func (m *measurement) filledWays(s set, n, repeat int) []string {
	checked := repeat > 0 || n < s.highest() || slices.ContainsFunc(m.env.Earlier, func(r bench.Row) bool {
		return r.Str("set") == s.name && r.Str("way") == oneByOne
	})
	return slices.DeleteFunc(s.ways(), func(w string) bool { return !m.how.wants(w) || w == oneByOne && checked })
}

// lone is what one container alone takes by default, seconds.
func lone(all []cell, set string) float64 { return find(all, set, timeSliced, 1).makespan() }

func paperFigures(rows []bench.Row) (out []bench.Figure) {
	all := cells(rows)
	for _, s := range paperSets() {
		ours := find(all, s.name, laxity, 0)
		for _, way := range []string{timeSliced, p3, laxity, mps} {
			c := find(all, s.name, way, 0)
			v := c.makespan() / (float64(c.n) * lone(all, s.name))
			out = append(out, bench.Figure{Name: "contention_" + s.name + "_" + way + "_vs_n_lone", Value: v, Unit: "×", Against: "N × lone", Ratio: v, Runs: len(c.runs)})
		}
		for _, against := range []string{timeSliced, p3} {
			v := ours.turnaround() / find(all, s.name, against, ours.n).turnaround()
			out = append(out, bench.Figure{Name: "contention_" + s.name + "_turnaround_vs_" + against, Value: v, Unit: "×", Against: against, Ratio: v, Runs: len(ours.runs)})
		}
	}
	return slices.DeleteFunc(out, func(f bench.Figure) bool { return math.IsNaN(f.Value) })
}

// paperTable has the medians of the phases, too, which are the paper's Table 1, and their spread, its Fig. 4.
func paperTable(rows []bench.Row) [][]string {
	all := cells(rows)
	lines := [][]string{{"SIZE", "N", "WAY", "MAKESPAN s", "× N × LONE", "MEAN TURNAROUND s", "INPUT s", "KERNELS s", "OUTPUT s", "KERNELS' SPREAD %", "RUNS"}}
	slices.SortStableFunc(all, func(a, b cell) int {
		return cmp.Or(slices.IndexFunc(paperSets(), func(s set) bool { return s.name == a.set })-slices.IndexFunc(paperSets(), func(s set) bool { return s.name == b.set }),
			a.n-b.n, slices.Index(allWays, a.way)-slices.Index(allWays, b.way))
	})
	for _, c := range all {
		mine := func(r bench.Row) bool {
			return r.Str("set") == c.set && r.Str("way") == c.way && int(r.Num("n_tasks")) == c.n
		}
		input, kernels, took := bench.Column(rows, "launch_s", mine), bench.Column(rows, "kernels_s", mine), bench.Column(rows, "took_s", mine)
		output := make([]float64, len(took))
		for i := range took {
			output[i] = took[i] - input[i] - kernels[i]
		}
		lines = append(lines, []string{c.set, fmt.Sprint(c.n), c.way, bench.Number(c.makespan()), bench.Number(c.makespan() / (float64(c.n) * lone(all, c.set))),
			bench.Number(c.turnaround()), bench.Number(bench.Median(input)), bench.Number(bench.Median(kernels)), bench.Number(bench.Median(output)),
			bench.Number(100 * (slices.Max(kernels) - slices.Min(kernels)) / bench.Median(kernels)), fmt.Sprint(len(c.runs))})
	}
	return lines
}
