// Package shares measures whether containers get their shares of a GPU's time, and what a labelled container that is
// alone pays for Laxity.
package shares

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/rig"
)

const about = `Three containers take equal steps (PyTorch, each a chain of bf16 multiplications of some 10 ms that fills the GPU;
its result is read before the next one begins) and carry laxity.share=10%, 30% and 60%. So a container's part of all steps is its
part of the GPU's time. First all of them want the GPU; then the one with 60 % is idle, and keeps its context. Ways: default is time
slicing without Laxity, laxity is "laxity up" with its default flags; both in each run, in an order that changes. The
programs have all run for --set settle when a window begins. share_error_points is the largest difference between part and share
of the three while all want the GPU. shares_idle_error_points is the same for the two that compute while the third is idle, with
their shares scaled to 100 %; shares_idle_short_points is the most that one of these two lacks of its own
share. Lone is one container with laxity.share=30% that has the GPU to itself: while its process runs, "laxity up" is
started and stopped in turns, and the second around each change is left out. lone_step_ratio is the median step of a
turn with Laxity over the mean of the medians before and after it. Values are medians over the runs (lone: the
turns), with their quartiles; a difference from default is none where the quartiles overlap. On a simulated GPU the programs are
matrix multiplications.`

// The ways that are compared.
const (
	timeSliced = "default"
	laxity     = "laxity"
)

// The parts of the experiment.
const (
	partShares = "shares"
	partLone   = "lone"
)

var (
	allWays  = []string{timeSliced, laxity}
	allParts = []string{partShares, partLone}
)

// Experiment is shares of a GPU's time.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "shares", Title: "Shares of a GPU's time", About: about,
		Settings: []bench.Setting{
			{Name: "runs", Means: "how often all is measured; 3", Part: true},
			{Name: "kernels", Means: "how many multiplications of some 1.5 ms a step is; 6"},
			{Name: "duration", Means: "how long a window is, as 10s; 10s"},
			{Name: "settle", Means: "how long the programs have run, or the one has been idle, when a window begins; 5s"},
			{Name: "warmup", Means: "how long programs may take to begin; 20s"},
			{Name: "turns", Means: "how often Laxity is started beside the container that is alone; 6"},
			{Name: "turn", Means: "how long it is measured with and without Laxity each time; 3s"},
			{Name: "ways", Means: "as default,laxity; both"},
			{Name: "parts", Means: "as shares,lone; both", Part: true},
			rig.Engine,
			{Name: "verbose", Means: "any value: the output of laxity up goes to standard error", Part: true},
		},
		Portions: true, Run: run, Figures: figures, Table: table,
	}
}

// settings are what --set says.
type settings struct {
	runs, turns, kernels           int
	duration, settle, warmup, turn time.Duration
	ways, parts                    []string
}

func (s settings) String() string {
	return fmt.Sprintf("kernels=%d duration=%v settle=%v turns=%d turn=%v", s.kernels, s.duration, s.settle, s.turns, s.turn)
}

func parse(env bench.Env) (s settings, err error) {
	s = settings{runs: 3, turns: 6, kernels: 6, duration: 10 * time.Second, settle: 5 * time.Second, warmup: 20 * time.Second, turn: 3 * time.Second}
	if env.Quick {
		s.runs, s.turns, s.duration, s.settle, s.turn = 1, 1, 2*time.Second, time.Second, time.Second
	}
	for name, to := range map[string]*int{"runs": &s.runs, "turns": &s.turns, "kernels": &s.kernels} {
		if *to, err = env.Number(name, 1, *to); err != nil {
			return s, err
		}
	}
	for name, to := range map[string]*time.Duration{"duration": &s.duration, "settle": &s.settle, "warmup": &s.warmup, "turn": &s.turn} {
		if *to, err = env.Duration(name, *to); err != nil {
			return s, err
		}
	}
	if s.ways, err = env.Some("ways", allWays, allWays); err != nil {
		return s, err
	}
	s.parts, err = env.Some("parts", allParts, allParts)
	return s, err
}

//go:embed *.py
var torchPrograms embed.FS

// measurement is what all runs use.
type measurement struct {
	*rig.Rig
	env      bench.Env
	how      settings
	programs *program.Set
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	how, err := parse(env)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "shares", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	m := &measurement{Rig: r, env: env, how: how}
	if m.programs, err = program.Open(r, torchPrograms); err != nil {
		return nil, err
	}
	return env.Repeat(how.runs, func(number int) ([]bench.Row, error) {
		found, err := m.run(ctx, number)
		for _, row := range found {
			row["run"], row["settings"] = number, how.String()
		}
		return found, err
	})
}

// run measures all once. All programs are started first, and wait, so that no start disturbs what
// is measured.
func (m *measurement) run(ctx context.Context, number int) (rows []bench.Row, err error) {
	var all []*program.Program
	defer func() { err = errors.Join(err, program.RemoveAll(all)) }()
	var stages []stage
	if slices.Contains(m.how.parts, partShares) {
		for _, way := range bench.Turned(m.how.ways, number) {
			s, err := m.newGroup(number, way)
			if err != nil {
				return nil, err
			}
			stages, all = append(stages, s), append(all, s.programs()...)
		}
	}
	if slices.Contains(m.how.parts, partLone) {
		l, err := m.newLone(number)
		if err != nil {
			return nil, err
		}
		stages, all = append(stages, l), append(all, l.Program)
	}
	if err := program.StartAll(ctx, all); err != nil {
		return nil, err
	}
	for _, s := range stages {
		found, err := s.measure(ctx)
		rows = append(rows, found...)
		if err != nil {
			return rows, err
		}
		m.env.Log("run %d, %s", number, said(found))
	}
	return rows, nil
}

// stage is a part of a run. It removes its programs at the end.
type stage interface {
	measure(ctx context.Context) ([]bench.Row, error)
}
