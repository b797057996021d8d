// Package gang measures whether a job on several GPUs, whose parts wait for each other, goes off and
// on as one.
package gang

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
	"github.com/laxity/laxity/internal/rm"
)

const about = `The parts of an NCCL job wait for each other: while one is off its GPU longer than another, the other one
spins. So all of its channels on all GPUs go off and on as one. In this experiment a job of two ranks (PyTorch, NCCL's all-reduce
and a matrix product in each step, every element of each sum compared) is taken off two GPUs and on again, from outside: as two
processes with a GPU each, and as one process on both. The skew is the time from the end of the first GPU's calls to
the end of the last GPU's. While the job is off no step may end; afterwards it must continue; at the end its results must be
right. On simulated GPUs the job is a program whose ranks run a kernel each and meet at a barrier.`

// The jobs.
const (
	processes = "processes" // two processes, a GPU each
	one       = "one"       // one process on both
)

var allJobs = []string{processes, one}

// Experiment is the measurement.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "gang", Title: "A job on two GPUs: off and on as one", About: about,
		Settings: []bench.Setting{
			{Name: "cycles", Means: "how often each job is taken off and on; 100"},
			{Name: "jobs", Means: "some of " + strings.Join(allJobs, ",") + "; all"},
			{Name: "off", Means: "how long it stays off; 30ms"},
			{Name: "in", Means: "container, or process: a process of this machine, where there is no Docker; container"},
			{Name: "limit", Means: "how long a job may take; then it ends early; 70s"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

type settings struct {
	cycles     int
	off, limit time.Duration
	jobs       []string
	in         string
}

func read(env bench.Env) (s settings, err error) {
	s = settings{cycles: 100, jobs: allJobs, in: inContainer}
	if env.Quick {
		s.cycles = 10
	}
	if s.cycles, err = env.Number("cycles", 1, s.cycles); err != nil {
		return s, err
	}
	if s.off, err = env.Duration("off", 30*time.Millisecond); err != nil {
		return s, err
	}
	if s.limit, err = env.Duration("limit", 70*time.Second); err != nil {
		return s, err
	}
	if s.jobs, err = env.Some("jobs", allJobs, s.jobs); err != nil {
		return s, err
	}
	if text, ok := env.Args["in"]; ok {
		s.in = text
	}
	if s.in != inContainer && s.in != inProcess {
		return s, fmt.Errorf("--set in=%s: write %s or %s", s.in, inContainer, inProcess)
	}
	return s, nil
}

// driver is the resource manager.
type driver interface {
	channels.Driver
	// Mark lets a search for processes that start later begin here.
	Mark(ctx context.Context) error
}

type unmarked struct{ channels.Driver }

func (unmarked) Mark(context.Context) error { return nil }

func openDriver(device string) (driver, error) {
	if socket, ok := strings.CutPrefix(device, "sim:"); ok {
		return unmarked{simrm.New(socket)}, nil
	}
	kernel := rm.System()
	version, err := kernel.Driver()
	if err != nil {
		return nil, fmt.Errorf("the version of NVIDIA's driver: %w", err)
	}
	return rm.New(kernel, rm.Options{Proven: []string{version}}), nil
}

// measurement is one run of the experiment.
type measurement struct {
	env      bench.Env
	how      settings
	random   *rand.Rand
	place    *place
	driver   driver
	enforcer *channels.Enforcer
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	m := &measurement{env: env, random: rand.New(rand.NewPCG(env.Seed, 0))} //nolint:gosec // not a secret
	if m.how, err = read(env); err != nil {
		return nil, err
	}
	if m.place, err = open(ctx, env, m.how.in); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.place.close()) }()
	if m.driver, err = openDriver(m.place.gpu.Device); err != nil {
		return nil, err
	}
	// A job stays off until the cycle's end, however late this program is with that.
	o := channels.Options{
		Driver: m.driver, Dir: filepath.Join(m.place.dir, "record"), AsOne: true,
		MaxOff: time.Minute, Deadline: 30 * time.Second,
	}
	if m.enforcer, err = channels.New(o); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, undo := m.enforcer.RestoreAll(ctx)
		err = errors.Join(err, undo)
	}()
	for _, name := range m.how.jobs {
		more, err := m.measure(ctx, name)
		for _, r := range more {
			r["job"] = name
		}
		if rows = append(rows, more...); err != nil {
			return rows, fmt.Errorf("job %s: %w", name, err)
		}
	}
	return rows, nil
}

// measure takes one job off and on, and ends it.
func (m *measurement) measure(ctx context.Context, name string) (rows []bench.Row, err error) {
	if err := m.driver.Mark(ctx); err != nil {
		return nil, err
	}
	j, err := m.place.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.remove()) }()
	t, err := m.target(ctx, j)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, j.said(ctx))
	}
	m.env.Log("%s: %d processes on %d GPUs", name, len(t.Processes), len(t.GPUs))
	for i, until := 0, time.Now().Add(m.how.limit); i < m.how.cycles && time.Now().Before(until); i++ {
		r, err := m.cycle(ctx, j, t)
		if err != nil {
			return rows, err
		}
		if rows = append(rows, r); r["stuck"] == true {
			break
		}
		if every := max(m.how.cycles/4, 1); (i+1)%every == 0 {
			m.env.Log("%s: %d of %d", name, i+1, m.how.cycles)
		}
	}
	end := bench.Row{"end": true}
	failed := j.finish(ctx)
	if failed != nil {
		end["error"] = failed.Error()
	}
	end["steps"], end["wrong"], end["ended_badly"] = int(j.told.Steps.Load()), int(j.told.Wrong.Load()), failed != nil //nolint:gosec // few
	return append(rows, end), nil
}

// startLimit is how long a job may take until it makes steps: PyTorch and NCCL take a while.
const startLimit = time.Minute

// target is the job's processes with channels, once it makes steps.
func (m *measurement) target(ctx context.Context, j *job) (t channels.Target, err error) {
	if err := bench.Until(ctx, startLimit, func() (bool, error) { return j.told.Steps.Load() >= 3, j.ended() }); err != nil {
		return t, fmt.Errorf("it makes no steps: %w", err)
	}
	t.Container = "gang"
	err = bench.Until(ctx, startLimit, func() (bool, error) {
		t.Processes, t.GPUs = nil, nil
		for _, p := range j.processes() {
			groups, err := m.driver.Find(ctx, p)
			if err != nil && !errors.Is(err, rm.ErrUnfinished) && !errors.Is(err, rm.ErrGone) {
				return false, err
			}
			if len(groups) > 0 {
				t.Processes = append(t.Processes, p)
			}
			for _, g := range groups {
				if !slices.Contains(t.GPUs, g.GPU) {
					t.GPUs = append(t.GPUs, g.GPU)
				}
			}
		}
		return len(t.GPUs) >= gpus, nil
	})
	if err != nil {
		return t, fmt.Errorf("its channels on %d GPUs are not found: %w", gpus, err)
	}
	_, err = m.enforcer.Inspect(ctx, t, channels.Standing{}) // it is found once
	return t, err
}

const (
	// settled is how long after the call the kernels count as stopped.
	settled = 5 * time.Millisecond
	// goesOn is how long the job may take until its next step.
	goesOn = 10 * time.Second
)

// cycle takes the job off and on once. Times are in seconds.
func (m *measurement) cycle(ctx context.Context, j *job, t channels.Target) (bench.Row, error) {
	// The moment within a step is to be any.
	if err := bench.Pass(ctx, 2*time.Millisecond+time.Duration(m.random.Int64N(int64(20*time.Millisecond)))); err != nil {
		return nil, err
	}
	r := bench.Row{}
	began := time.Now()
	off, offErr := m.enforcer.Apply(ctx, t, channels.Standing{Off: true, Reason: "it is measured whether it goes off as one"})
	r["off_call_s"] = time.Since(began).Seconds()
	if err := bench.Pass(ctx, settled); err != nil {
		return nil, err
	}
	before := j.told.Steps.Load()
	if err := bench.Pass(ctx, m.how.off); err != nil {
		return nil, err
	}
	stood := j.told.Steps.Load()
	began = time.Now()
	on, onErr := m.enforcer.Apply(ctx, t, channels.Standing{})
	r["on_call_s"] = time.Since(began).Seconds()
	waited := bench.Until(ctx, goesOn, func() (bool, error) { return j.told.Steps.Load() > stood, j.ended() })
	r["stuck"] = waited != nil
	if offErr == nil {
		r["off_skew_s"] = off.Skew.Seconds()
		// A step that has ended may be told a moment later.
		r["moved"] = stood > before+1
	}
	if onErr == nil {
		r["on_skew_s"] = on.Skew.Seconds()
	}
	r["failed"] = offErr != nil || onErr != nil
	if err := errors.Join(offErr, onErr, waited); err != nil {
		r["error"] = err.Error()
	}
	return r, ctx.Err()
}
