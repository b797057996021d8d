package zoo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
	gpu "github.com/laxity/laxity/exporter/task"
)

// blockOf is how many pairs are measured under one run of Laxity.
const blockOf = 5

// Places where it is measured, which are ways of rows.
const alone, beside = "alone", "beside"

const aboutUnlabelled = `A program without a label of Laxity's (a matrix multiplication of the CUDA runtime) runs with "laxity up" at
its default flags and without it, from the start of its container to its end, in pairs: alone, and beside two
containers with labels that compute without end. The ratio is that of a pair, and the figure their median.

Less than 1 is no merit of the order: alone, a CUDA program starts 0.09 s faster and ends 0.04 s faster while another process
has CUDA open, as the helper of "laxity up" that swaps containers has. Beside others, who have CUDA open either way, the slices
of those with labels are shorter while a container without one computes.`

// Unlabelled is what Laxity costs a program that it has nothing to do with.
func Unlabelled() bench.Experiment {
	return bench.Experiment{
		Name: "unlabelled", Title: "An unlabelled program, with Laxity and without", About: aboutUnlabelled,
		Settings: append([]bench.Setting{
			{Name: "pairs", Means: "pairs of runs; 30", Flag: true, Part: true},
			{Name: "in", Means: "alone, beside or both; both", Flag: true, Part: true},
			laxityAt, ofEngine,
		}, bench.Simulation...), Portions: true, Run: runUnlabelled, Figures: unlabelledFigures, Table: unlabelledTable,
	}
}

func runUnlabelled(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	fallback := 30
	if env.Quick {
		fallback = 1
	}
	pairs, err := env.Number("pairs", 1, fallback)
	if err != nil {
		return nil, err
	}
	places := []string{alone, beside}
	if in := env.Args["in"]; slices.Contains(places, in) {
		places = []string{in}
	} else if in != "" && in != "both" {
		return nil, fmt.Errorf("--in=%s: write alone, beside or both", in)
	}
	m, err := open(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	subject := drawn{kind: kinds[1], args: []string{"kernels=16", "host=300"}}
	from, err := m.pool(env, plan{})
	if err != nil {
		return nil, err
	}
	for _, k := range from.kinds {
		if k.verb == "matmul" {
			subject = drawn{kind: k, args: []string{"n=8192", "kernels=4"}}
		}
	}
	add := rowsFrom(env, &rows)
	for _, place := range places {
		if err := m.pairs(ctx, subject, place, pairs, add); err != nil {
			return rows, fmt.Errorf("%s: %w", place, err)
		}
	}
	return rows, nil
}

// pairs measures how long the subject runs, with Laxity and without, in one place.
func (m *machine) pairs(ctx context.Context, subject drawn, place string, pairs int, add func(bench.Row)) error {
	var others []drawn
	if place == beside {
		endless := kind{name: "endless", from: animal, verb: "endless"}
		others = []drawn{
			{kind: endless, args: []string{"kernels=4"}, labels: map[string]string{gpu.LabelDeadline: "30s"}},
			{kind: endless, args: []string{"kernels=8"}, labels: map[string]string{gpu.LabelClass: "batch"}},
		}
	}
	for done := 0; done < pairs; done += blockOf {
		n := min(blockOf, pairs-done)
		seconds, err := m.block(ctx, subject, others, n, done/blockOf%2 == 1)
		if err != nil {
			return err
		}
		for i := range n {
			add(bench.Row{"way": place, "pair": done + i, "with": seconds[with][i], "without": seconds[without][i], "ratio": seconds[with][i] / seconds[without][i]})
		}
		m.env.Log("%s: %d of %d pairs", place, done+n, pairs)
	}
	return nil
}

func unlabelledFigures(rows []bench.Row) (all []bench.Figure) {
	for _, place := range []string{alone, beside} {
		ratios := bench.Column(rows, "ratio", bench.Way(place))
		all = append(all, bench.Quartiles("unlabelled_"+place+"_ratio", func(name string, q float64) bench.Figure {
			return bench.Figure{Name: name, Value: bench.Quantile(ratios, q), Unit: "×", Runs: len(ratios)}
		})...)
	}
	return all
}

func unlabelledTable(rows []bench.Row) [][]string {
	lines := [][]string{{"UNLABELLED", "PAIRS", "S WITH LAXITY", "S WITHOUT", "RATIO", "25–75 %"}}
	for _, place := range []string{alone, beside} {
		ratios := bench.Column(rows, "ratio", bench.Way(place))
		if len(ratios) == 0 {
			continue
		}
		median := func(key string) string { return bench.Number(bench.Median(bench.Column(rows, key, bench.Way(place)))) }
		lines = append(lines, []string{
			place, fmt.Sprint(len(ratios)), median("with"), median("without"), median("ratio"),
			bench.Number(bench.Quantile(ratios, 0.25)) + "–" + bench.Number(bench.Quantile(ratios, 0.75)),
		})
	}
	return lines
}

// block measures n runs with Laxity and n without.
func (m *machine) block(ctx context.Context, subject drawn, others []drawn, n int, withFirst bool) (map[string][]float64, error) {
	seconds := map[string][]float64{}
	order := []string{without, with}
	if withFirst {
		order = []string{with, without}
	}
	for _, way := range order {
		var err error
		if seconds[way], err = m.runs(ctx, way, subject, others, n); err != nil {
			return nil, err
		}
	}
	return seconds, nil
}

// runs returns how long each of n runs took, in seconds.
func (m *machine) runs(ctx context.Context, way string, subject drawn, others []drawn, n int) (seconds []float64, err error) {
	if way == with {
		l, err := m.startLaxity(ctx, false, nil)
		if err != nil {
			return nil, err
		}
		defer func() { l.left(context.WithoutCancel(ctx)) }()
		defer func() { _ = l.stop() }()
	}
	for i, d := range others {
		s, err := m.create(ctx, way, 100+i, d)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.remove()) }()
		if err := s.start(ctx); err != nil {
			return nil, err
		}
	}
	if len(others) > 0 {
		if err := bench.Pass(ctx, 1500*time.Millisecond); err != nil { // they compute by then
			return nil, err
		}
	}
	for i := range n {
		s, err := m.create(ctx, way, i, subject)
		if err != nil {
			return nil, err
		}
		err = s.start(ctx)
		if err == nil {
			waiting, cancel := context.WithTimeout(ctx, boundWithout)
			err = s.wait(waiting)
			cancel()
		}
		e, _ := s.how()
		if err == nil && !e.right(subject.kind) {
			err = fmt.Errorf("the program ended with %v: %s", e, s.said())
		}
		if err = errors.Join(err, s.remove()); err != nil {
			return nil, err
		}
		seconds = append(seconds, e.seconds)
	}
	return seconds, nil
}
