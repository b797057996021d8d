// Package account compares what the exporter says each container had of a card, GPU-seconds and
// joules, with what two programs of unequal power truly had.
package account

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
)

const about = `Two containers without labels compute without a break: heavy multiplies fp32 matrices, light adds to a small tensor;
neither makes the card lower its clock. Each is alone for a while, which tells how long one of its batches takes and how much
power it draws beyond the idle card; then both share the card by time slices. What each truly had is the number of its batches
times what one takes alone, and those seconds times its power alone. The exporter's gpu_container_gpu_seconds_total and
gpu_container_energy_joules_total are compared with it: while both compute, of which each was alone before, and by an exporter
that began while both computed and never saw one alone. Two checks: containers, idle, other and unknown must add up to what
the card's energy counter grew by; and so should the truth, or it is none. What is missing to the wall clock in the truth's
seconds are switches from one program to the other.`

// The programs.
const (
	heavy = "heavy"
	light = "light"
)

// The phases, in their order.
const (
	resting = "resting" // both programs have a context, none computes
	both    = "both"
	unseen  = "unseen" // both compute, and the exporter has never seen one of them alone
)

//go:embed programs
var files embed.FS

// Experiment is the measurement.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "account", Title: "Who used the card: GPU-seconds and joules", About: about,
		Settings: []bench.Setting{
			{Name: "alone", Means: "how long each program is alone, and none computes; 20s"},
			{Name: "together", Means: "how long both compute, for each exporter; 2m"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

type settings struct{ alone, together time.Duration }

func read(env bench.Env) (s settings, err error) {
	s = settings{20 * time.Second, 2 * time.Minute}
	if env.Quick {
		s = settings{5 * time.Second, 10 * time.Second}
	}
	if s.alone, err = env.Duration("alone", s.alone); err != nil {
		return s, err
	}
	s.together, err = env.Duration("together", s.together)
	return s, err
}

// watts is what a program draws on a simulated GPU beyond the idle card.
var watts = map[string]string{heavy: "550", light: "180"}

// measurement is one run of the experiment.
type measurement struct {
	env          bench.Env
	how          settings
	rig          *rig.Rig
	heavy, light *program.Program
	meter        *meter
	phases       []phase
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	m := &measurement{env: env}
	if m.how, err = read(env); err != nil {
		return nil, err
	}
	if m.rig, err = rig.Open(ctx, env, "account", 1); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.rig.Close()) }()
	if err := m.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, program.RemoveAll(m.programs())) }()
	if err := m.measure(ctx); err != nil {
		return nil, err
	}
	spans := map[string][]program.Span{}
	for _, p := range m.programs() {
		if spans[p.Name], err = p.Spans(ctx); err != nil {
			return nil, err
		}
	}
	return rowsOf(m.phases, map[string][]program.Span{heavy: spans[m.heavy.Name], light: spans[m.light.Name]})
}

func (m *measurement) programs() []*program.Program { return []*program.Program{m.heavy, m.light} }

// start starts both programs, which have contexts then and rest.
func (m *measurement) start(ctx context.Context) error {
	text, err := fs.Sub(files, "programs")
	if err != nil {
		return err
	}
	set, err := program.Open(m.rig, text)
	if err != nil {
		return err
	}
	for name, into := range map[string]**program.Program{heavy: &m.heavy, light: &m.light} {
		kind := program.Kind{File: name + ".py", N: 8192, Kernels: 4, Resident: true}
		spec := tenant.Spec{Name: m.rig.Name + "-" + name}
		if m.rig.GPU.Simulated() {
			spec.Env = []string{cuda.EnvWatts + "=" + watts[name]}
		}
		if *into, err = set.Program(name, name, kind, spec); err != nil {
			return err
		}
	}
	if err := program.StartAll(ctx, m.programs()); err != nil {
		return errors.Join(err, program.RemoveAll(m.programs()))
	}
	return nil
}

// warmLimit is how long a program may take for its first batches: PyTorch loads its kernels.
const warmLimit = time.Minute

// measure has the programs go through the phases.
func (m *measurement) measure(ctx context.Context) (err error) {
	if m.meter, err = openMeter(ctx, m.rig); err != nil {
		return err
	}
	defer func() { m.meter.close() }()
	for _, p := range m.programs() {
		if err := p.Tell(); err != nil {
			return err
		}
	}
	if err := program.Warm(ctx, warmLimit, m.programs()); err != nil {
		return fmt.Errorf("the programs compute nothing: %w", err)
	}
	for _, step := range []struct {
		phase  string
		works  []*program.Program
		lasts  time.Duration
		reopen bool
	}{
		{resting, nil, m.how.alone, false},
		{heavy, []*program.Program{m.heavy}, m.how.alone, false},
		{light, []*program.Program{m.light}, m.how.alone, false},
		{both, m.programs(), m.how.together, false},
		{unseen, m.programs(), m.how.together, true},
	} {
		if err := m.onlyWork(step.works); err != nil {
			return err
		}
		if step.reopen {
			m.meter.close()
			if m.meter, err = openMeter(ctx, m.rig); err != nil {
				return err
			}
		}
		m.env.Log("%s: %v", step.phase, step.lasts)
		if err := m.pass(ctx, step.phase, step.lasts); err != nil {
			return err
		}
	}
	return nil
}

// onlyWork lets these programs compute and the other ones rest.
func (m *measurement) onlyWork(works []*program.Program) error {
	var errs []error
	for _, p := range m.programs() {
		if slices.Contains(works, p) {
			errs = append(errs, p.Resume())
		} else {
			errs = append(errs, p.Rest())
		}
	}
	return errors.Join(errs...)
}

// settle is how long a change of who computes is left out: the driver's samples lag, and clocks and
// power follow the load.
const settle = 3 * time.Second

func (m *measurement) pass(ctx context.Context, name string, lasts time.Duration) error {
	if err := bench.Pass(ctx, settle); err != nil {
		return err
	}
	first, err := m.meter.next(ctx)
	if err != nil {
		return err
	}
	if err := bench.Pass(ctx, lasts); err != nil {
		return err
	}
	last, err := m.meter.next(ctx)
	if err != nil {
		return err
	}
	m.phases = append(m.phases, phase{name, first, last})
	return nil
}
