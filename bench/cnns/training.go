package cnns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

// models are the networks of cnn.py. The trainings take them in turns.
var models = []string{"plain", "residual", "dense"}

// headroom is what a training may hold beyond what it held alone, bytes.
const headroom = 256 << 20

// result is what a training comes to. The checksum is empty on a simulated GPU.
type result struct {
	steps    int
	checksum string
}

// training is one, by one way.
type training struct {
	*program.Program
	number int
	late   bool
	model  string

	told     time.Time
	took     time.Duration
	deadline time.Duration // 0: none
	need     float64       // what it held, by the way one; bytes
	result   result
	outcome  string
}

// trainings makes those of a way. Alone are those of the way one; without them each takes as many steps as it can.
func (m *measurement) trainings(run int, way string, alone []*training) (all []*training, err error) {
	for i := range m.how.trainings {
		t := &training{number: i, late: i >= m.how.trainings-m.how.late, model: models[i%len(models)]}
		spec := tenant.Spec{
			Name: fmt.Sprintf("laxity-bench-cnns-%d-%d-%s-%d", os.Getpid(), run, way, i), Labels: map[string]string{},
			Env: []string{
				"LAXITY_MODEL=" + t.model, fmt.Sprint("LAXITY_SEED=", i), fmt.Sprint("LAXITY_MIB=", m.how.memory),
				fmt.Sprint("LAXITY_SECONDS=", m.how.length.Seconds()),
			},
		}
		kind := m.kind()
		if alone != nil {
			kind.Steps = alone[i].result.steps
			spec.Env = append(spec.Env, fmt.Sprint("LAXITY_STEPS=", kind.Steps))
			if t.late {
				t.deadline = (time.Duration(m.how.deadline) * alone[i].took).Round(time.Millisecond)
			}
		} else {
			spec.Env = append(spec.Env, "LAXITY_STEPS=0")
		}
		if way == laxity {
			spec.Labels[task.LabelGPUMemory] = strconv.FormatUint(uint64(alone[i].need)+headroom, 10)
			if t.late {
				spec.Labels[task.LabelDeadline] = t.deadline.String()
			}
		}
		if t.Program, err = m.programs.Program(fmt.Sprintf("begin-%d-%s", run, way), strconv.Itoa(i), kind, spec); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// simulatedStep is what two multiplications of 8192² take.
const simulatedStep = 400 * time.Millisecond

func (m *measurement) kind() program.Kind {
	return program.Kind{
		File: "cnn.py", N: 8192, Kernels: 2, Resident: true,
		Steps: max(1, int(m.how.length/simulatedStep)), Holds: uint64(m.how.memory) << 20, //nolint:gosec // it is from 1 on
	}
}

// measure lets the trainings of a way run to their ends, and removes them.
func (m *measurement) measure(ctx context.Context, way string, all []*training) (err error) {
	programs := make([]*program.Program, len(all))
	for i, t := range all {
		programs[i] = t.Program
	}
	defer func() { err = errors.Join(err, program.RemoveAll(programs)) }()
	if way == laxity {
		stop, err := m.Up(ctx, m.env, way, "--arbitrate=always")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := program.StartAll(ctx, programs); err != nil {
		return err
	}
	if way == one {
		return m.inTurns(ctx, all)
	}
	return m.together(ctx, all)
}

// inTurns runs one after another, and learns what each needs.
func (m *measurement) inTurns(ctx context.Context, all []*training) error {
	before, err := m.Read(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		// The memory of the one before is free some time after its end.
		err := bench.Until(ctx, time.Minute, func() (bool, error) {
			now, err := m.Read(ctx)
			return err == nil && now.GPUs[0].MemoryUsed <= before.GPUs[0].MemoryUsed, err
		})
		if err != nil {
			return fmt.Errorf("memory of an ended training is not free: %w", err)
		}
		stop, err := m.WatchMemory(ctx)
		if err != nil {
			return err
		}
		err = t.train(ctx, m.limit())
		t.need = stop().Most
		if err != nil {
			return err
		}
		if t.outcome != ended || !(t.need > 0) {
			return fmt.Errorf("training %d (%s) does not end well by itself: %s, held %.0f MiB", t.number, t.model, t.outcome, t.need/(1<<20))
		}
		m.env.Log("training %d, %s, alone: %.1f s, %d steps, %.0f MiB", t.number, t.model, t.took.Seconds(), t.result.steps, t.need/(1<<20))
	}
	return nil
}

// together runs them side by side; the late ones come later, one after another.
func (m *measurement) together(ctx context.Context, all []*training) error {
	errs := make(chan error, len(all))
	begun := 0
	var failed error
	for _, t := range all {
		if t.late {
			if failed = bench.Pass(ctx, m.how.after); failed != nil {
				break
			}
		}
		begun++
		go func() { errs <- t.train(ctx, m.limit()) }()
	}
	for range begun {
		failed = errors.Join(failed, <-errs)
	}
	return failed
}

// limit is how long a training may take beside all others, swaps included.
func (m *measurement) limit() time.Duration {
	return 2*time.Minute + 3*time.Duration(m.how.trainings)*m.how.length
}

// The outcomes.
const (
	ended       = "ended"
	outOfMemory = "out of memory"
	stuck       = "stuck"
	failed      = "failed"
)

// train tells the training to begin, and waits for its end. An error means that it is not known what became of it.
func (t *training) train(ctx context.Context, limit time.Duration) error {
	t.told = time.Now()
	if err := t.Tell(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := t.Wait(limited)
	t.took = time.Since(t.told)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.outcome = outcomeOf(err, limited.Err() != nil)
	spans, err := t.Spans(ctx)
	if err != nil {
		return err
	}
	text, err := t.Stdout(ctx)
	t.result = result{len(spans), checksumIn(text)}
	return err
}

// outcomeOf is how a training ended, by the error of Wait.
func outcomeOf(err error, late bool) string {
	switch {
	case err == nil:
		return ended
	case late:
		return stuck
	case strings.Contains(strings.ToLower(err.Error()), "memory"):
		return outOfMemory
	default:
		return failed
	}
}

// checksumIn returns the checksum among the lines that a program has printed; empty if there is none.
func checksumIn(text string) (sum string) {
	for line := range strings.Lines(text) {
		var said struct{ Checksum string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Checksum != "" {
			sum = said.Checksum
		}
	}
	return sum
}

// right reports whether it ended with what its lone run came to.
func (t *training) right(alone *training) bool { return t.outcome == ended && t.result == alone.result }

// inTime reports whether it met its deadline; NaN: it has none.
func (t *training) inTime() float64 {
	switch {
	case t.deadline == 0:
		return math.NaN()
	case t.outcome == ended && t.took <= t.deadline:
		return 1
	default:
		return 0
	}
}
