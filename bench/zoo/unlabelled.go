package zoo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/bench"
	gpu "github.com/laxity/laxity/exporter/task"
)

// blockOf is how many pairs are measured under one run of Laxity.
const blockOf = 5

// unlabelled measures how long a program without a label runs, with Laxity and without
// it, alone or beside two labelled ones, in pairs.
func (m *machine) unlabelled(ctx context.Context, from pool, places []string, pairs int, add func(bench.Row)) error {
	subject := drawn{kind: kinds[1], args: []string{"kernels=16", "host=300"}}
	for _, k := range from.kinds {
		if k.verb == "matmul" {
			subject = drawn{kind: k, args: []string{"n=8192", "kernels=4"}}
		}
	}
	company := []drawn{
		{kind: kind{name: "endless", from: animal, verb: "endless"}, args: []string{"kernels=4"}, labels: map[string]string{gpu.LabelDeadline: "30s"}},
		{kind: kind{name: "endless", from: animal, verb: "endless"}, args: []string{"kernels=8"}, labels: map[string]string{gpu.LabelClass: "batch"}},
	}
	for _, way := range places {
		var others []drawn
		if way == beside {
			others = company
		}
		for done := 0; done < pairs; done += blockOf {
			n := min(blockOf, pairs-done)
			seconds, err := m.block(ctx, subject, others, n, done/blockOf%2 == 1)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			for i := range n {
				add(bench.Row{"way": way, "pair": done + i, "with": seconds[with][i], "without": seconds[without][i], "ratio": seconds[with][i] / seconds[without][i]})
			}
			m.env.Log("%s: %d of %d pairs", way, done+n, pairs)
		}
	}
	return nil
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
