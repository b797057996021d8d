package channels

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/bench"
)

// Ways of stopping a tenant.
const (
	byChannels = "channels"
	byPause    = "docker pause"
)

const (
	// settled is how long after the call the kernel counts as stopped: what moves later is wrong.
	settled = 5 * time.Millisecond
	// stands is how long it is watched then.
	stands = 3 * time.Millisecond
	// simKernel is how long a kernel takes on a simulated GPU, where only whole ones are counted.
	simKernel = time.Millisecond
	// simRest is between two looks at such a counter: there the GPU needs the core.
	simRest = 200 * time.Microsecond
	// goesOn is how long the kernel may take to go on.
	goesOn = 2 * time.Second
)

// long is a container whose kernel is switched.
func (m *measurement) long(ctx context.Context, kernel time.Duration) (*subject, error) {
	if m.GPU.Simulated() {
		kernel = simKernel
	}
	if err := m.driver.Mark(ctx); err != nil {
		return nil, err
	}
	s, err := m.start(ctx, work{name: "kernel", kernel: kernel, kernels: endless})
	if err != nil {
		return nil, err
	}
	if _, err := m.enforcer.Inspect(ctx, s.target(), channels.Standing{}); err != nil { // it is found once
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (m *measurement) follow(s *subject) *watch {
	rest := time.Duration(0)
	if m.GPU.Simulated() {
		rest = simRest
	}
	return follow(s.Beat.Load, rest)
}

// switching takes a running kernel off the GPU and on again, and in turns with that pauses a
// container.
func (m *measurement) switching(ctx context.Context) (rows []bench.Row, err error) {
	a, err := m.long(ctx, m.how.kernel)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	w := m.follow(a)
	defer w.end()
	p, err := m.newPauser(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	cycles, pauses := m.how.of(partSwitch, m.how.cycles), m.how.of(partPause, m.how.pauses)
	paused := 0
	for i, until := 0, time.Now().Add(m.how.limit); i < max(cycles, pauses) && time.Now().Before(until); i++ {
		if i < cycles {
			r, err := m.cycle(ctx, a, w)
			if err != nil {
				return rows, err
			}
			rows = append(rows, r)
			m.progress("off and on", i+1, cycles)
		}
		if paused < pauses && (i+1)*pauses >= (paused+1)*max(cycles, pauses) {
			paused++
			r, err := p.pause(ctx, a)
			if err != nil { // the alternative may be missing here
				r, pauses = bench.Row{"way": byPause, "cannot": err.Error()}, 0
			}
			rows = append(rows, r)
		}
	}
	for _, s := range []struct {
		way string
		*subject
	}{{byChannels, a}, {byPause, p.subject}} {
		direct := s.Direct.Load() != 0 // the GPU itself moved the counter
		err := m.finish(ctx, s.subject)
		r := bench.Row{"way": s.way, "kernels": int(s.Done.Load()), "wrong": err != nil, "compared": !m.GPU.Simulated(), "direct": direct}
		if err != nil {
			r["error"] = err.Error()
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// of is how often something of a part is done: not at all if the part is not wanted.
func (s settings) of(part string, n int) int {
	if !slices.Contains(s.parts, part) {
		return 0
	}
	return n
}

func (m *measurement) progress(what string, n, of int) {
	if every := max(of/4, 1); n%every == 0 {
		m.env.Log("%s: %d of %d", what, n, of)
	}
}

// cycle takes a kernel off and on once. Times are in seconds, from each decision on.
func (m *measurement) cycle(ctx context.Context, s *subject, w *watch) (bench.Row, error) {
	// The moment within a slice, and in what the driver does, is to be any.
	if err := bench.Pass(ctx, 2*time.Millisecond+time.Duration(m.random.Int64N(int64(5*time.Millisecond)))); err != nil {
		return nil, err
	}
	r := bench.Row{"way": byChannels}
	began := time.Now()
	_, offErr := m.enforcer.Apply(ctx, s.target(), channels.Standing{Off: true, Reason: "it is measured how soon"})
	called := time.Now()
	r["off_call_s"] = called.Sub(began).Seconds()
	if err := bench.Pass(ctx, settled); err != nil {
		return nil, err
	}
	last, stood := w.movedLast(), s.Beat.Load()
	if err := bench.Pass(ctx, stands); err != nil {
		return nil, err
	}
	if offErr == nil {
		r["off_s"] = max(last.Sub(began), 0).Seconds()
		r["moved"] = s.Beat.Load()-stood > m.told()
	}
	w.arm()
	began = time.Now()
	_, onErr := m.enforcer.Apply(ctx, s.target(), channels.Standing{})
	r["on_call_s"] = time.Since(began).Seconds()
	r["stuck"] = m.until(ctx, m.goesOn, func() bool { _, ok := w.movedFirst(); return ok }) != nil
	if first, ok := w.movedFirst(); ok && offErr == nil {
		r["on_s"] = first.Sub(began).Seconds()
	}
	if err := errors.Join(offErr, onErr); err != nil { // a call that failed is a result, too
		r["error"] = err.Error()
	}
	r["failed"] = offErr != nil || onErr != nil
	return r, ctx.Err()
}

// told is how far a counter may move without its kernel: the end of a simulated one is
// told by its program, and that may be late.
func (m *measurement) told() uint32 {
	if m.GPU.Simulated() {
		return 1
	}
	return 0
}
