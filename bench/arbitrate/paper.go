package arbitrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
)

// What tasks of a size do, and how all sizes are measured.
const (
	aboutSize = `P3's own experiment at one of its sizes, on the card that is here: equal containers, %s, each of which makes two matrices of %s,
copies them to the GPU, multiplies them and copies the result back. Today's cards multiply faster than they copy, so the product is repeated until
kernels are nine tenths of a lone task, as on the paper's card; how often is measured once, and kept for all runs of a result.`
	aboutInference = `P2's Fig. 4: %s containers of 40 small requests each, with a kernel of about 25 ms and 0.17 s of other work, which together
leave the GPU partly idle.`
	aboutPaper = ` Ways: default is time slicing, p3 the paper's algorithm by Docker pause, laxity as it is shipped (time slices; nobody has a
deadline here), mps NVIDIA's MPS. N × lone, which the paper compares with, is N times the time of one container alone; one runs them one after
another, once, to check that. Input is from the start to the first launch, output from the last kernel's end to the end. All times are those that
the programs stamp themselves. The median of the runs of each way, with the least and the most; kernels are those
of all tasks, their spread is the most less the least of a run's in percent of their median; no way is always first. A run is a portion or several, one after another: a
later one takes the ways that are still to be measured. laxity, which learns from earlier runs, knows one lone run at the start of each portion.
Only runs of all ways count. FAILED says how often a way did not get its run done, and was tried again.`
)

// filled is the part of a lone task that its kernels are.
const filled = 0.9

func paperSets() []set {
	of := func(n int, counts ...int) set {
		return set{name: fmt.Sprint(n), kinds: []kind{{n: n, kernels: 1}}, counts: counts, turnsAt: slices.Max(counts), filled: true, asShipped: true, resumed: true}
	}
	return []set{of(19456, 1, 2, 5), of(13312, 1, 2, 5, 10), of(8192, 1, 5, 20),
		{name: "inference", kinds: []kind{{n: 4096, kernels: 1, host: 0.12, repeat: 40}}, counts: []int{1, 2, 3, 4, 5}, asShipped: true, resumed: true, noTurns: true}}
}

// Papers are the contention that the papers show, and what P3's algorithm and ours do about it: an experiment for
// each size, as each takes longer than a machine is lent for.
func Papers() (all []bench.Experiment) {
	for _, s := range paperSets() {
		all = append(all, paper(s))
	}
	return all
}

// PaperName is the experiment of a set.
func PaperName(set string) string { return "contention-" + set }

func paper(s set) bench.Experiment {
	counts := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.counts)), ", "), "[]")
	title, about := fmt.Sprintf("Contention and turns, %s² in %s containers (P3, Figs 2–4 and 7–9, Table 1)", s.name, counts), fmt.Sprintf(aboutSize, counts, s.name+"²")
	if !s.filled {
		title, about = fmt.Sprintf("Contention and turns, small inferences in %s containers (P2, Fig. 4)", counts), fmt.Sprintf(aboutInference, counts)
	}
	return bench.Experiment{
		Name: PaperName(s.name), Title: title, About: about + aboutPaper,
		Settings: []bench.Setting{
			{Name: "ways", Means: "some of default,p3,laxity,mps,one; all"},
			{Name: "counts", Means: "of the numbers of containers the lowest, middle, highest, one by its number, or all; all", Part: true},
			{Name: "repeats", Means: "runs of each in the result, with those of earlier portions; 3", Part: true},
			{Name: "limit", Means: "how long after the start of a portion another way may begin; 5m30s", Part: true},
			{Name: "verbose", Means: "any value: the actuator's log on the standard error", Part: true},
		},
		Portions: true, Table: paperTable,
		Run:     func(ctx context.Context, env bench.Env) ([]bench.Row, error) { return runPaper(ctx, env, s) },
		Figures: func(rows []bench.Row) []bench.Figure { return paperFigures(rows, s) },
	}
}

func runPaper(ctx context.Context, env bench.Env, s set) ([]bench.Row, error) {
	how := settings{repeats: 3, limit: 330 * time.Second, timeout: 4 * time.Minute, hold: "auto"}
	if env.Quick {
		how.repeats, s.counts, s.turnsAt = 1, []int{1, 3}, 3
	}
	how.sets = []set{s}
	how, err := parse(how, env)
	if err != nil {
		return nil, err
	}
	return measureSets(ctx, env, how)
}

// fill finds how many kernels are nine tenths of a lone task; an earlier portion of the result has found it.
func (m *measurement) fill(ctx context.Context, s set) (kernels int, err error) {
	for _, r := range m.env.Earlier {
		if r.Str("set") == s.name && !failed(r) {
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

// resume measures the ways of a run (from 0) that earlier portions have not.
func (m *measurement) resume(ctx context.Context, s set, n, repeat int) error {
	number := repeat + 1
	all := m.paperWays(s, n, number)
	for _, way := range remaining(m.env.Earlier, s.name, n, number, all) {
		if err := m.learn(ctx, s, n, way); err != nil {
			return err
		}
		found, err := m.one(ctx, s, n, number, way)
		if errors.Is(err, errLeftOut) {
			continue // a later portion tries again
		}
		if err != nil && !errors.Is(err, errFailed) { // that one is tried again, too, and told
			return err
		}
		for _, r := range found {
			r["ways"] = len(m.paperWays(s, n, number)) // one may have turned out to be impossible
		}
		m.rows = append(m.rows, found...)
	}
	return nil
}

// learn runs one container by the way that learns from earlier runs, unless this portion has: each portion
// begins with nothing learned, wherever in a run it begins.
func (m *measurement) learn(ctx context.Context, s set, n int, way string) error {
	if way != laxity || m.learned[s.name] {
		return nil
	}
	m.learned[s.name] = true
	if n == 1 {
		return nil // it learns from the run itself
	}
	_, err := m.one(ctx, s, 1, 0, way) // of no run, so it does not count
	if errors.Is(err, errLeftOut) || errors.Is(err, errFailed) {
		return nil // so is what would follow
	}
	return err
}

// paperWays are those of a run (from 1) that this machine has: all, and in the first run of the highest count
// one after another, too.
func (m *measurement) paperWays(s set, n, number int) []string {
	return slices.DeleteFunc(s.ways(), func(w string) bool {
		return !m.how.wants(w) || m.without[w] != "" || w == oneByOne && (number > 1 || n != s.turnsAt)
	})
}

// remaining are the ways of a run (from 1) without rows, in the run's order: no way is always first.
func remaining(rows []bench.Row, set string, n, number int, ways []string) (out []string) {
	for _, way := range bench.Turned(ways, number-1) {
		if !slices.ContainsFunc(rows, func(r bench.Row) bool {
			return !failed(r) && r.Str("set") == set && int(r.Num("n_tasks")) == n && int(r.Num("run")) == number && r.Str("way") == way
		}) {
			out = append(out, way)
		}
	}
	return out
}

// Whole keeps the rows of contention whose run has all its ways. What failed is no row of a run.
func Whole(rows []bench.Row) []bench.Row {
	rows = measured(rows)
	type run struct {
		set       string
		n, number float64
	}
	of := func(r bench.Row) run { return run{r.Str("set"), r.Num("n_tasks"), r.Num("run")} }
	seen, least := map[run]map[string]bool{}, map[run]float64{}
	for _, r := range rows {
		k := of(r)
		if seen[k] == nil {
			seen[k], least[k] = map[string]bool{}, r.Num("ways")
		}
		seen[k][r.Str("way")] = true
		least[k] = min(least[k], r.Num("ways"))
	}
	return slices.DeleteFunc(rows, func(r bench.Row) bool { return float64(len(seen[of(r)])) < least[of(r)] })
}

// lone is what one container alone takes by default, seconds.
func lone(all []cell, set string) float64 { return find(all, set, timeSliced, 1).makespan() }

// paperFigures are of the most containers.
func paperFigures(rows []bench.Row, s set) (out []bench.Figure) {
	all := cells(Whole(rows))
	of := func(way string) cell { return find(all, s.name, way, s.highest()) }
	ours := of(laxity)
	figure := func(name, against string, v float64, runs int) {
		out = append(out, bench.Figure{Name: "contention_" + s.name + "_" + name, Value: v, Unit: "×", Against: against, Ratio: v, Runs: runs})
	}
	for _, way := range []string{timeSliced, p3, laxity, mps} {
		c := of(way)
		figure(way+"_vs_n_lone", "N × lone", c.makespan()/(float64(c.n)*lone(all, s.name)), len(c.runs))
	}
	for _, against := range []string{timeSliced, p3} {
		figure("turnaround_vs_"+against, against, ours.turnaround()/of(against).turnaround(), len(ours.runs))
	}
	return slices.DeleteFunc(out, func(f bench.Figure) bool { return math.IsNaN(f.Value) })
}

// paperTable has the medians of the phases, too, which are the paper's Table 1, and their spread, its Fig. 4.
func paperTable(rows []bench.Row) [][]string {
	tried := cells(rows)
	rows = Whole(rows)
	all := cells(rows)
	lines := [][]string{{"N", "WAY", "MAKESPAN s", "× N × LONE", "MEAN TURNAROUND s", "INPUT s", "KERNELS s", "OUTPUT s", "KERNELS' SPREAD %", "RUNS", "FAILED"}}
	slices.SortStableFunc(tried, func(a, b cell) int {
		return cmp.Or(a.n-b.n, slices.Index(allWays, a.way)-slices.Index(allWays, b.way))
	})
	for _, t := range tried { // also where no run is whole: a way that always fails makes none whole
		c := find(all, t.set, t.way, t.n)
		mine := func(r bench.Row) bool {
			return r.Str("way") == t.way && int(r.Num("n_tasks")) == t.n
		}
		input, kernels, took := bench.Column(rows, "launch_s", mine), bench.Column(rows, "kernels_s", mine), bench.Column(rows, "took_s", mine)
		output := make([]float64, len(took))
		for i := range took {
			output[i] = took[i] - input[i] - kernels[i]
		}
		lines = append(lines, []string{fmt.Sprint(t.n), t.way, withRange(c.each(makespanOf)), bench.Number(c.makespan() / (float64(t.n) * lone(all, t.set))),
			withRange(c.each(turnaroundOf)), bench.Number(bench.Median(input)), withRange(kernels), bench.Number(bench.Median(output)),
			bench.Number(100 * bench.Median(c.each(spreadOf))), fmt.Sprint(len(c.runs)), fmt.Sprint(t.failed)})
	}
	return lines
}

// withRange is a median, with the least and the most beside it where there are several.
func withRange(values []float64) string {
	if len(values) < 2 {
		return bench.Number(bench.Median(values))
	}
	return fmt.Sprintf("%s (%s–%s)", bench.Number(bench.Median(values)), bench.Number(slices.Min(values)), bench.Number(slices.Max(values)))
}
