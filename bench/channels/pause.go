package channels

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/bench"
)

// pauseKernel is how long the kernel takes that a pause finds running: it is waited for.
const pauseKernel = 500 * time.Millisecond

// pauseFor is how long the container is paused: long enough for that kernel's end.
func (l limits) pauseFor() time.Duration { return l.pauseKernel + 200*time.Millisecond }

// goesOnAfter is how soon after it a program that was waiting for its simulated kernel, of which no beat is
// seen, says that it has ended, if it ended meanwhile: less than what was left of it.
func (l limits) goesOnAfter() time.Duration { return l.pauseKernel / 2 }

// pauser is a container that is paused by the engine.
type pauser struct {
	*subject
	m *measurement
	// holder keeps the other one off for longer than enforcers do by themselves.
	holder *channels.Enforcer
}

// newPauser starts it; it launches nothing yet.
func (m *measurement) newPauser(ctx context.Context) (*pauser, error) {
	s, err := m.start(ctx, work{name: "paused", kernel: m.pauseKernel})
	if err != nil {
		return nil, err
	}
	holder, err := m.newEnforcer(10 * time.Second)
	return &pauser{s, m, holder}, err
}

// pause pauses the container while its kernel runs. The other one is off meanwhile, so that
// this kernel has the GPU alone. The kernel ran on if it beat after the pause was made and no more after its end,
// so that it ended while its container was paused.
func (p *pauser) pause(ctx context.Context, other *subject) (_ bench.Row, err error) {
	if _, err := p.holder.Apply(ctx, other.target(), channels.Standing{Off: true, Reason: "a pause is measured"}); err != nil {
		return nil, err
	}
	defer func() {
		_, onErr := p.holder.Apply(context.WithoutCancel(ctx), other.target(), channels.Standing{})
		err = errors.Join(err, onErr)
	}()
	w := p.m.follow(p.subject)
	defer w.end()
	done, launched := p.Done.Load(), p.Launched.Load()
	p.Launch.Add(1)
	runs := func() bool {
		_, moved := w.movedFirst()
		return p.Launched.Load() != launched && (moved || p.Direct.Load() == 0)
	}
	if err := p.m.until(ctx, startLimit, runs); err != nil {
		return nil, fmt.Errorf("the kernel to be paused: %w", err)
	}
	// Somewhere in its first third.
	if err := bench.Pass(ctx, 20*time.Millisecond+time.Duration(p.m.random.Int64N(int64(p.m.pauseKernel/4)))); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.Pause(ctx); err != nil {
		return nil, err
	}
	paused := time.Now()
	r := bench.Row{"way": byPause, "off_call_s": paused.Sub(began).Seconds()}
	if err := bench.Pass(ctx, p.m.pauseFor()); err != nil {
		return nil, err
	}
	last, beats := w.movedLast(), p.Direct.Load() != 0 // the GPU itself moves the counter
	if beats {
		r["off_s"] = max(last.Sub(began), 0).Seconds()
	}
	began = time.Now()
	if err := p.Unpause(ctx); err != nil {
		return nil, err
	}
	r["on_call_s"] = time.Since(began).Seconds()
	soon := p.m.until(ctx, p.m.goesOnAfter(), func() bool { return p.Done.Load() > done }) == nil
	if err := p.m.until(ctx, startLimit, func() bool { return p.Done.Load() > done }); err != nil {
		return nil, fmt.Errorf("the kernel that was paused: %w", err)
	}
	r["ran_on"] = soon && (!beats || last.After(paused) && w.movedLast().Equal(last))
	return r, nil
}
