package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/mps"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/tenant"
)

// set is a server and its trainers, for one way in one run.
type set struct {
	way    string
	run    int
	host   tenant.Spec  // what all of its containers need besides
	mps    *mps.Service // nil: none
	xsched *xserver     // nil: none
	seats  []*seat
}

// seat is a program in a container.
type seat struct {
	*program.Program
	part
}

// programs are those of the first seats.
func programs(seats []*seat) (all []*program.Program) {
	for _, p := range seats {
		all = append(all, p.Program)
	}
	return all
}

// newSet prepares a set; it is nil where the way cannot be measured here.
func (m *measurement) newSet(ctx context.Context, run int, way string) (s *set, err error) {
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
	if way == withXSched { // a program asks for it as soon as it loads the shim
		if s.xsched, err = m.how.xsched.start(ctx, m.Dir); err != nil {
			return nil, err
		}
		s.host = m.how.xsched.spec(m.Tenants.DriverFolder())
	}
	for _, p := range m.how.scene.parts[:slices.Max(m.how.scene.begun)] {
		seat, err := m.seat(s, p)
		if err != nil {
			return nil, errors.Join(err, s.remove())
		}
		s.seats = append(s.seats, seat)
	}
	return s, nil
}

func (m *measurement) seat(s *set, p part) (*seat, error) {
	spec := s.host
	spec.Env = slices.Clone(s.host.Env)
	spec.Name = fmt.Sprintf("laxity-bench-serve-%d-%d-%s-%s", os.Getpid(), s.run, s.way, p.name)
	spec.Labels = p.labels
	if s.way == mpsPriority && p.role.answers() {
		spec.Env = append(spec.Env, "CUDA_MPS_CLIENT_PRIORITY=0")
	}
	if s.way == mpsPriority && p.role == trainer {
		spec.Env = append(spec.Env, "CUDA_MPS_CLIENT_PRIORITY=1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80")
	}
	if m.how.scene.streams {
		spec.Env = append(spec.Env, "LAXITY_STREAM=own")
	}
	if s.way == withXSched {
		spec.Env = append(spec.Env, m.how.xsched.priority(p.role)...)
	}
	made, err := m.programs.Program(fmt.Sprintf("begin-%d-%s", s.run, s.way), p.name, kinds[p.role], spec)
	return &seat{made, p}, err
}

// startAll starts the programs of all sets, and returns when they wait.
func startAll(ctx context.Context, sets []*set) error {
	var all []*program.Program
	for _, s := range sets {
		all = append(all, programs(s.seats)...)
	}
	return program.StartAll(ctx, all)
}

// remove removes the containers, and ends XSched's server. It may be called again.
func (s *set) remove() error {
	return errors.Join(program.RemoveAll(programs(s.seats)), s.xsched.stop())
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
	spans := make([][]program.Span, len(s.seats))
	for i, p := range s.seats {
		err := bench.Until(ctx, answerLimit, func() (_ bool, err error) {
			spans[i], err = p.Spans(ctx)
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
			if err := p.Tell(); err != nil {
				return nil, err
			}
		}
		before = begun
		err := program.Warm(ctx, m.how.warmup, programs(s.seats[:begun]))
		if err != nil && !errors.Is(err, bench.ErrTooLate) { // who is held is not waited for
			return nil, err
		}
		if err := bench.Pass(ctx, settle); err != nil {
			return nil, err
		}
		w := window{begun: begun, from: program.Unix(time.Now())}
		if err := bench.Pass(ctx, m.how.duration); err != nil {
			return nil, err
		}
		w.to = program.Unix(time.Now())
		all = append(all, w)
	}
	return all, nil
}
