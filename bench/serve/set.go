package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/mps"
	"github.com/laxity/laxity/bench/tenant"
)

// set is a server and its trainers, for one way in one run.
type set struct {
	way   string
	run   int
	host  tenant.Spec  // what all of its containers need besides
	mps   *mps.Service // nil: none
	seats []*seat
}

// seat is a program in a container. It waits until it is told to begin.
type seat struct {
	*tenant.Tenant
	part
	spec  tenant.Spec
	begin string // the file that tells it
}

// newSet prepares a set; it is nil where the way cannot be measured here.
func (m *measurement) newSet(run int, way string) (s *set, err error) {
	if m.without[way] != "" {
		return nil, nil
	}
	s = &set{way: way, run: run}
	if way == withMPS || way == mpsPriority {
		if s.mps, err = mps.New(filepath.Join(m.Dir, fmt.Sprintf("mps-%d-%s", run, way))); err != nil {
			return nil, err
		}
		s.host = s.mps.Spec()
	}
	folder := filepath.Join(m.Dir, fmt.Sprintf("begin-%d-%s", run, way))
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
		return nil, err
	}
	for _, p := range m.how.scene.parts[:slices.Max(m.how.scene.begun)] {
		s.seats = append(s.seats, s.seat(folder, p))
	}
	return s, nil
}

func (s *set) seat(folder string, p part) *seat {
	seat := &seat{part: p, spec: s.host, begin: filepath.Join(folder, p.name)}
	seat.spec.Name = fmt.Sprintf("laxity-bench-serve-%d-%d-%s-%s", os.Getpid(), s.run, s.way, p.name)
	seat.spec.Env = append(slices.Clone(s.host.Env), "LAXITY_BEGIN="+seat.begin)
	seat.spec.Labels = p.labels
	if s.way == mpsPriority && p.role.answers() {
		seat.spec.Env = append(seat.spec.Env, "CUDA_MPS_CLIENT_PRIORITY=0")
	}
	if s.way == mpsPriority && p.role == trainer {
		seat.spec.Env = append(seat.spec.Env, "CUDA_MPS_CLIENT_PRIORITY=1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80")
	}
	return seat
}

// atOnce is how many containers the engine is asked for at a time.
const atOnce = 8

// startAll starts the programs of all sets, and returns when they wait.
func (m *measurement) startAll(ctx context.Context, sets []*set) error {
	group, starting := errgroup.WithContext(ctx) // which ends with group.Wait
	group.SetLimit(atOnce)
	for _, s := range sets {
		for _, p := range s.seats {
			group.Go(func() (err error) {
				p.Tenant, err = m.programs.start(starting, p)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, s := range sets {
		for _, p := range s.seats {
			if err := m.until(ctx, startLimit, func() (bool, error) { return m.programs.waits(ctx, p) }); err != nil {
				return fmt.Errorf("%s is not ready: %w", p.Name, err)
			}
		}
	}
	return nil
}

// startLimit is how long a program may take to wait: PyTorch alone takes seconds.
const startLimit = 2 * time.Minute

// errTooLate is what until returns after its limit.
var errTooLate = errors.New("it takes too long")

// until asks again and again, up to a limit.
func (m *measurement) until(ctx context.Context, limit time.Duration, holds func() (bool, error)) error {
	for deadline := time.Now().Add(limit); ; {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errTooLate
		}
		if err := bench.Pass(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// tell lets the program begin. The file appears with its content.
func (p *seat) tell() error {
	draft := p.begin + ".draft"
	if err := os.WriteFile(draft, fmt.Appendf(nil, "%.6f\n", unix(time.Now())), 0o644); err != nil { //nolint:gosec // a container reads it
		return err
	}
	return os.Rename(draft, p.begin)
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// remove removes the containers. It may be called again.
func (s *set) remove() error {
	var group errgroup.Group
	for _, p := range s.seats {
		if p.Tenant != nil {
			group.Go(p.Remove)
		}
	}
	return group.Wait()
}

// window is a time during which the first programs of a scene are measured.
type window struct {
	begun    int
	from, to float64 // Unix seconds
}

// settle is how long programs have run when a window begins.
const settle = 500 * time.Millisecond

// answerLimit is how long a server may take for a request once nothing is done to
// it any more.
const answerLimit = time.Minute

// measure goes through the windows of a set and returns a row for each.
func (m *measurement) measure(ctx context.Context, s *set) (_ []bench.Row, err error) {
	w, err := m.begin(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	windows, err := m.windows(ctx, s)
	if err = errors.Join(err, w.release()); err != nil {
		return nil, fmt.Errorf("way %s: %w", s.way, err)
	}
	end := windows[len(windows)-1].to
	spans := make([][]span, len(s.seats))
	for i, p := range s.seats {
		err := m.until(ctx, answerLimit, func() (_ bool, err error) {
			spans[i], err = m.programs.spans(ctx, p)
			found := spans[i]
			return !p.role.answers() || len(found) > 0 && found[len(found)-1].Began >= end, err
		})
		if err != nil {
			return nil, fmt.Errorf("way %s: %s answers no more: %w", s.way, p.name, err)
		}
	}
	var rows []bench.Row
	for _, w := range windows {
		found, err := rowsIn(w, s.seats, spans)
		if err != nil {
			return nil, fmt.Errorf("way %s: %w", s.way, err)
		}
		for _, r := range found {
			r["way"], r["run"], r["scene"] = s.way, s.run, m.how.scene.name
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// windows lets the programs begin, place by place.
func (m *measurement) windows(ctx context.Context, s *set) (all []window, err error) {
	before := 0
	for _, begun := range m.how.scene.begun {
		for _, p := range s.seats[before:begun] {
			if err := p.tell(); err != nil {
				return nil, err
			}
		}
		before = begun
		err := m.until(ctx, m.how.warmup, func() (bool, error) { return m.warm(ctx, s.seats[:begun]) })
		if err != nil && !errors.Is(err, errTooLate) { // who is held is not waited for
			return nil, err
		}
		if err := bench.Pass(ctx, settle); err != nil {
			return nil, err
		}
		w := window{begun: begun, from: unix(time.Now())}
		if err := bench.Pass(ctx, m.how.duration); err != nil {
			return nil, err
		}
		w.to = unix(time.Now())
		all = append(all, w)
	}
	return all, nil
}

// warm reports whether each of these programs has taken three steps.
func (m *measurement) warm(ctx context.Context, seats []*seat) (bool, error) {
	for _, p := range seats {
		if spans, err := m.programs.spans(ctx, p); err != nil || len(spans) < 3 {
			return false, err
		}
	}
	return true, nil
}
