package shares

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
)

// around is how much time after a change is left out. The time in which Laxity starts and stops is, too.
const around = time.Second

// lone is a container that has the GPU to itself.
type lone struct {
	*measurement
	member
}

func (m *measurement) newLone(run int) (*lone, error) {
	one, err := m.newMember(run, alone, 30)
	return &lone{m, one}, err
}

// measure starts and stops Laxity in turns while the program runs.
func (l *lone) measure(ctx context.Context) (rows []bench.Row, err error) {
	defer func() { err = errors.Join(err, l.Remove()) }()
	if err := l.Tell(); err != nil {
		return nil, err
	}
	if err := program.Warm(ctx, l.how.warmup, []*program.Program{l.Program}); err != nil {
		return nil, fmt.Errorf("it takes no steps: %w", err)
	}
	var windows []window
	for turn := range 2*l.how.turns + 1 { // the first and the last are without
		w, err := l.pass(ctx, turn)
		if err != nil {
			return nil, err
		}
		windows = append(windows, w)
	}
	spans, err := l.Spans(ctx)
	if err != nil {
		return nil, err
	}
	for turn, w := range windows {
		row, err := loneRow(w, turn, spans)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// pass is one turn. The odd ones are with Laxity.
func (l *lone) pass(ctx context.Context, turn int) (w window, err error) {
	stop := func() error { return nil }
	if turn%2 == 1 {
		if stop, err = l.Up(ctx, l.env, alone); err != nil {
			return w, err
		}
	}
	w, err = pass(ctx, alone, around, l.how.turn)
	return w, errors.Join(err, stop())
}
