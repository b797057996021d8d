package zoo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
)

// Ways of a round.
const (
	without = "without"
	with    = "with"
)

// outcome is what came of a round in one way.
type outcome struct {
	ends     []end
	said     []string // of each container that did not end as it should
	troubles []trouble
	left     []string // what Laxity left behind
	counts   counts
	seconds  float64 // from the first start to the last end
	longest  float64 // that anybody stood, seconds
	off      float64 // that anybody's channels were off, seconds
}

// play runs the round, with Laxity beside it or without. Containers that have not
// ended after the bound are described and removed.
func (m *machine) play(ctx context.Context, r round, way string, bound time.Duration) (out outcome, err error) {
	all := make([]*specimen, len(r.containers))
	defer func() {
		var wait sync.WaitGroup
		for _, s := range all {
			if s != nil {
				wait.Go(func() { _ = s.remove() }) // what is left goes with the machine
			}
		}
		wait.Wait()
	}()
	var l *laxity
	err = together(append(creations(ctx, m, r, way, all), func() (err error) {
		if way == with {
			if l, err = m.startLaxity(ctx, r.services, r.flags); err != nil {
				return &notStartedError{err}
			}
		}
		return err
	}))
	if l != nil {
		defer func() {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
			defer cancel()
			l.count(stopping)
			if err := l.stop(); err != nil {
				out.left = append(out.left, err.Error())
			}
			out.left = append(append(out.left, l.left(stopping)...), l.failed...)
			out.counts = l.counted()
		}()
	}
	if err != nil {
		return out, err
	}
	w := newWatcher(l, all)
	watching, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { w.run(watching) })
	began := time.Now()
	err = m.live(ctx, r, way, l, all, bound)
	out.seconds = time.Since(began).Seconds()
	late(w, l, all, bound)
	stopWatching()
	watch.Wait()
	out.troubles, out.longest, out.off = w.found()
	for _, s := range all {
		e, _ := s.how()
		out.ends = append(out.ends, e)
		text := ""
		if !e.right(s.kind) && !s.doomed {
			text = s.said()
		}
		out.said = append(out.said, text)
	}
	return out, err
}

func creations(ctx context.Context, m *machine, r round, way string, all []*specimen) (todo []func() error) {
	for i, d := range r.containers {
		todo = append(todo, func() (err error) {
			if all[i], err = m.create(ctx, way, i, d); err == nil {
				all[i].doomed = r.dies(i)
			}
			return err
		})
	}
	return todo
}

// together does all at once and joins what went wrong.
func together(all []func() error) error {
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, do := range all {
		wait.Go(func() { errs[i] = do() })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// live starts the containers and kills what is to die, and returns when all containers
// have ended, or the bound is over.
func (m *machine) live(ctx context.Context, r round, way string, l *laxity, all []*specimen, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var todo []func() error
	for _, s := range all {
		todo = append(todo, func() error {
			if err := bench.Pass(ctx, s.after); err != nil {
				return err
			}
			err := s.start(ctx)
			if errors.Is(err, errUnstarted) {
				s.neverRan()
				return nil
			}
			if err != nil {
				return err
			}
			return s.wait(ctx)
		})
	}
	deaths := make(chan error, 1)
	dying, stop := context.WithCancel(ctx)
	go func() { deaths <- together(m.deaths(dying, r, way, l, all)) }()
	err := together(todo)
	stop() // nobody is left to see a further death
	killed := <-deaths
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = nil // those that are late are found by that
	}
	return errors.Join(err, killed)
}

func (m *machine) deaths(ctx context.Context, r round, way string, l *laxity, all []*specimen) (todo []func() error) {
	engines := false
	for _, d := range r.deaths {
		switch {
		case d.ofTenant():
			todo = append(todo, func() error {
				if bench.Pass(ctx, d.after) == nil {
					m.slay(ctx, d, all[d.whom])
				}
				return nil
			})
		case way == without:
		case d.who == engineDies || d.who == engineStops:
			if engines {
				continue // one restart at a time
			}
			engines = true
			todo = append(todo, func() error {
				if bench.Pass(ctx, d.after) == nil { // else the round is over
					return m.restartEngine(context.WithoutCancel(ctx), d, all)
				}
				return nil
			})
		default:
			todo = append(todo, func() error {
				if bench.Pass(ctx, d.after) == nil {
					l.dies(ctx, d, all)
				}
				return nil
			})
		}
	}
	return todo
}

// slay kills or stops a container.
func (m *machine) slay(ctx context.Context, d death, s *specimen) {
	if d.who == tenantKilled {
		_ = kill(s.process()) // 0: it has ended, or has not begun
		return
	}
	_ = m.engine.stop(ctx, s.id) // it may have ended
}

// startWindow is how long the engine is at a container that it has said to have started.
const startWindow = 500 * time.Millisecond

// restartEngine ends the engine and starts it again. What ends meanwhile may lose its
// status.
func (m *machine) restartEngine(ctx context.Context, d death, all []*specimen) error {
	down := time.Now()
	for _, s := range all {
		s.mu.Lock()
		s.overRestart = !s.ended
		s.shaken = s.overRestart && !s.calls.IsZero() && (s.started.IsZero() || down.Sub(s.started) < startWindow)
		s.mu.Unlock()
	}
	own := m.engine.service()
	end := own.Stop
	if d.who == engineDies {
		end = own.Kill
	}
	err := end()
	_ = bench.Pass(ctx, d.again)
	err = errors.Join(err, own.Start(ctx))
	return err
}

// late reports the containers that have not ended in time.
func late(w *watcher, l *laxity, all []*specimen, bound time.Duration) {
	for _, s := range all {
		if _, ended := s.how(); ended {
			continue
		}
		text := fmt.Sprintf("container %d (%s, %v) has not ended after %v: %s", s.number, s.kind.name, labelText(s.labels), bound, l.tells(s))
		if g, ok := w.groupOf(s); ok {
			for _, pid := range processesOf(g) {
				text += "; " + describe(pid)
			}
			if frozen(g) {
				text += "; frozen"
			}
		}
		s.mu.Lock()
		s.end, s.ended = end{late: true}, true
		s.mu.Unlock()
		w.mu.Lock()
		w.troubles = append(w.troubles, trouble{container: s.number, what: text})
		w.mu.Unlock()
	}
}
