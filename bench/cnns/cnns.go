// Package cnns measures trainings of CNNs that do not fit into a GPU beside each other (P4).
package cnns

import (
	"context"
	"embed"
	"errors"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/rig"
)

const about = `Four trainings of three small CNNs (PyTorch: plain, with residuals, dense), each in a container of its own, with its images on the GPU.
The way one comes first: one after another, without Laxity, each for --set length. So it says what each needs, and what comes out: its number of steps,
and a checksum of all losses and weights. Then a ballast container leaves 2.75 times the largest need, and the same trainings take the same
steps by the other ways: two begin at once and fill the card, two more come one after another, --set after apart. Default is side by side, without
Laxity. With laxity ("laxity up --arbitrate=always") each carries laxity.gpu-memory, what it needs and 256 MiB; the two that come later also
laxity.deadline, four times their lone time, for which others are swapped out.
A training is right if it ended and its steps and checksum are those of its lone run.
Its time is from when it is told to begin, and includes its waits; by the way one all count from the first one's. PyTorch is told to use deterministic
algorithms. On a simulated GPU the trainings are matrix multiplications; its memory has no content, so their steps alone are compared.`

// The ways that are compared.
const (
	one     = "one"
	without = "default"
	laxity  = "laxity"
)

var allWays = []string{one, without, laxity}

// Experiment is CNNs that do not fit beside each other.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "cnns", Title: "Trainings of CNNs that do not fit beside each other (P4)", About: about,
		Settings: []bench.Setting{
			{Name: "runs", Means: "how often all is measured; 1", Part: true},
			{Name: "trainings", Means: "how many; 4"},
			{Name: "late", Means: "how many of them come later and have a deadline; 2"},
			{Name: "fit", Means: "how many fit beside each other; 2"},
			{Name: "memory", Means: "MiB that the images of each take; 16384"},
			{Name: "length", Means: "how long each takes alone, as 20s; 20s"},
			{Name: "after", Means: "how much later each of the late ones comes; 12s"},
			{Name: "deadline", Means: "the deadline of the late ones, as a multiple of their lone time; 4"},
			{Name: "verbose", Means: "any value: the output of laxity up goes to standard error", Part: true},
		},
		Portions: true, Run: run, Figures: figures, Table: table,
	}
}

// settings are what --set says.
type settings struct {
	runs, trainings, late, fit, memory, deadline int
	length, after                                time.Duration
}

func parse(env bench.Env) (s settings, err error) {
	s = settings{runs: 1, trainings: 4, late: 2, fit: 2, memory: 16384, deadline: 4, length: 20 * time.Second, after: 12 * time.Second}
	if env.Quick {
		s.trainings, s.late, s.fit, s.memory, s.length, s.after = 2, 1, 1, 12288, 10*time.Second, 7*time.Second
	}
	for name, to := range map[string]*int{"runs": &s.runs, "trainings": &s.trainings, "fit": &s.fit, "deadline": &s.deadline} {
		if *to, err = env.Number(name, 1, *to); err != nil {
			return s, err
		}
	}
	if s.memory, err = env.Number("memory", 64, s.memory); err != nil { // more images than a step takes
		return s, err
	}
	if s.late, err = env.Number("late", 0, s.late); err != nil {
		return s, err
	}
	for name, to := range map[string]*time.Duration{"length": &s.length, "after": &s.after} {
		if *to, err = env.Duration(name, *to); err != nil {
			return s, err
		}
	}
	if s.late > s.trainings {
		return s, errors.New("--set late: there are fewer trainings than that")
	}
	return s, nil
}

//go:embed cnn.py
var torchPrograms embed.FS

// measurement is what all runs use.
type measurement struct {
	*rig.Rig
	env      bench.Env
	how      settings
	programs *program.Set
	room     float64 // of the GPU's memory, bytes, once the ballast is there
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	how, err := parse(env)
	if err != nil {
		return nil, err
	}
	r, err := rig.Open(ctx, env, "cnns", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	m := &measurement{Rig: r, env: env, how: how}
	if m.programs, err = program.Open(r, torchPrograms); err != nil {
		return nil, err
	}
	return env.Repeat(how.runs, func(number int) ([]bench.Row, error) { return m.run(ctx, number) })
}

// run takes all ways once. Others than the way one are compared with it.
func (m *measurement) run(ctx context.Context, number int) (rows []bench.Row, err error) {
	var alone []*training
	for _, way := range allWays {
		if way != one {
			if err := m.fill(ctx, alone); err != nil {
				return nil, err
			}
		}
		trainings, err := m.trainings(number, way, alone)
		if err != nil {
			return nil, err
		}
		if err := m.measure(ctx, way, trainings); err != nil {
			return nil, err
		}
		if way == one {
			alone = trainings
		}
		found, err := m.rowsOf(number, way, trainings, alone)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
		m.env.Log("run %d, %s", number, said(found))
	}
	return rows, nil
}

// fill lets the ballast take what the trainings are not to have. It stays for further runs.
func (m *measurement) fill(ctx context.Context, alone []*training) error {
	if m.room != 0 {
		return nil
	}
	for _, t := range alone {
		m.room = max(m.room, (float64(m.how.fit)+0.75)*t.need)
	}
	return m.Ballast(ctx, uint64(m.room))
}
