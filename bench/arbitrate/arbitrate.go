// Package arbitrate measures what arbitration does to sets of tasks that share a
// GPU: P3's Figures 7–9 and Table 1, and deadlines.
package arbitrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/bench"
	nvidia "github.com/laxity/laxity/bench/mps"
	"github.com/laxity/laxity/bench/rig"
)

const about = `Sets of tasks in containers of their own on one GPU. Equal ones that start at once: large
(16384² matrices, 2 kernels, about 3 s of computing each), middle (8192², 4 kernels) and small
(4096², 4 kernels, about 0.1 s each), each after a host phase; idle is 5 tasks of 40 rounds with a
kernel of about 25 ms and 0.17 s of other work, which together leave the GPU partly idle (P2,
Fig. 4). The set deadlines is 8 large tasks that arrive in shuffled order, 50 ms apart; the i-th has
1.1 × (the time of one alone + (i−1) × its kernels' time) + 0.5 s. Their containers wait until it is
time to begin, so that arrivals do not depend on the engine.
Each set runs by each way in turn: default is time slicing, p3 the paper's algorithm by Docker
pause, laxity time slices in order (first come, first served; in idle the default policy), fifo, edf
and llf the same with these policies, mps NVIDIA's MPS, one is one after another. All times are those
that the programs stamp themselves; with one, a task counts as begun when the first one of its set
does. Makespan is from the first start to the last end; hits are those of the worst run.` + aboutFailed

const aboutFailed = ` A run in
which a way fails (a task breaks or hangs, or what orders them does) counts for no way; FAILED says for
how many runs a way is to blame for that.`

// Experiment is arbitration beside its alternatives.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "arbitrate", Title: "Arbitration: makespan, turnaround and deadlines (P3, Figs 7–9 and Table 1)", About: about,
		Settings: []bench.Setting{
			{Name: "sets", Means: "the sets of tasks, as small,deadlines; all", Part: true},
			{Name: "ways", Means: "ways, or in the set deadlines policies, as default,laxity,edf; all"},
			{Name: "counts", Means: "of a set's numbers of tasks the lowest, middle, highest, one by its number, or all; all", Part: true},
			{Name: "repeats", Means: "runs of each; 3", Part: true},
			{Name: "limit", Means: "how long after the start another run may begin; 8m", Part: true},
			{Name: "policy", Means: "of the way laxity; fifo"},
			{Name: "hold", Means: "of all ways but p3, as laxity up has it; auto"},
			{Name: "share", Means: "how many compute at once where the others are held: one, p3 or adaptive; the policy's own"},
			rig.Engine,
			{Name: "verbose", Means: "any value: the actuator's log on the standard error", Part: true},
		},
		Portions: true, Run: run, Figures: figures, Table: table, Charts: charts,
	}
}

// measurement is what all runs use.
type measurement struct {
	*rig.Rig
	env     bench.Env
	how     settings
	began   time.Time
	rows    []bench.Row
	without map[string]string // ways that cannot be measured here, and why
	learned map[string]bool   // sets of which the way laxity has seen a lone run in this portion
}

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	how, err := parse(defaults(env.Quick), env)
	if err != nil {
		return nil, err
	}
	return measureSets(ctx, env, how)
}

func measureSets(ctx context.Context, env bench.Env, how settings) (_ []bench.Row, err error) {
	r, err := rig.Open(ctx, env, "arbitrate", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	m := &measurement{Rig: r, env: env, how: how, began: time.Now(), without: map[string]string{}, learned: map[string]bool{}}
	if m.GPU.Simulated() {
		m.without[mps] = "the simulated GPU has no MPS"
	}
	for _, s := range how.sets {
		if err := m.set(ctx, s); err != nil {
			return m.rows, err
		}
	}
	return m.rows, nil
}

// set measures one set by all ways, as often as was asked for.
func (m *measurement) set(ctx context.Context, s set) error {
	if s.due != nil {
		s.kinds = slices.Clone(s.kinds)
		for i, k := range s.kinds { // measured here, because the deadlines are made from it
			a, err := m.alone(ctx, k)
			if err != nil {
				return err
			}
			m.env.Log("%s: one %s alone takes %.2fs, %.2fs of it in kernels", s.name, k.name, a.took, a.kernels)
			s.kinds[i].alone = a
		}
	}
	if s.filled {
		kernels, err := m.fill(ctx, s)
		if err != nil {
			return err
		}
		s.kinds[0].kernels = kernels
	}
	measure := m.run
	if s.resumed {
		measure = m.resume
	}
	for r := range m.how.repeats {
		for _, n := range s.counts {
			if err := measure(ctx, s, n, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// errLeftOut means that there was no time to measure a way, and with it the run.
var errLeftOut = errors.New("left out")

// errFailed means that a way did not get a run done. It has one row then, which says why.
var errFailed = errors.New("failed")

// run measures n tasks by all ways, once. It keeps the rows of all of them, or that of the one that failed.
func (m *measurement) run(ctx context.Context, s set, n, repeat int) error {
	var rows []bench.Row
	number, ways := m.env.FirstRun()+repeat, m.waysOf(s, n, repeat)
	for _, way := range bench.Turned(ways, number-1) {
		found, err := m.one(ctx, s, n, number, way)
		switch {
		case errors.Is(err, errLeftOut):
			m.env.Log("%s, %d tasks: run %d does not count", s.name, n, number)
			return nil
		case errors.Is(err, errFailed):
			m.rows = append(m.rows, found...)
			return nil
		case err != nil:
			return err
		}
		rows = append(rows, found...)
	}
	m.rows = append(m.rows, rows...)
	return nil
}

// waysOf lists the ways for n tasks in a repeat (from 0). Below the highest count
// there are fewer ways and one repeat: those show the trend.
func (m *measurement) waysOf(s set, n, repeat int) []string {
	var ways []string
	for _, w := range s.ways() {
		below := n < s.highest()
		if m.how.wants(w) && (!below || (repeat == 0 && w != mps && w != oneByOne)) {
			ways = append(ways, w)
		}
	}
	return ways
}

// one measures n tasks by one way, once. Without time for it the error is errLeftOut; where the way or a task of it
// fails errFailed, with a row that says why; any other error ends the measurement. A way that this machine cannot has
// no rows.
func (m *measurement) one(ctx context.Context, s set, n, run int, way string) ([]bench.Row, error) {
	what := fmt.Sprintf("%s, %d tasks, run %d, %s", s.name, n, run, way)
	if since := time.Since(m.began); since > m.how.limit {
		m.env.Log("%s: left out, %.0fs are over (limit=…)", what, since.Seconds())
		return nil, errLeftOut
	}
	if why := m.without[way]; why != "" {
		m.env.Log("%s: left out: %s", what, why)
		return nil, nil
	}
	runCtx, cancel := context.WithTimeout(ctx, m.how.timeout)
	defer cancel()
	rows, err := m.round(runCtx, s, n, run, way)
	var no *nvidia.UnavailableError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &no):
		m.without[way] = no.Why
		m.env.Log("%s: left out: %s", what, no.Why)
		return nil, nil
	case err != nil:
		m.env.Log("%s: failed: %v", what, err)
		return []bench.Row{failedRow(s, way, n, run, err)}, errFailed
	default:
		sum := summarise(rows)
		hits := ""
		if s.due != nil {
			hits = fmt.Sprintf(", %d hit", sum.hits)
		}
		m.env.Log("%s: makespan %.2fs, mean turnaround %.2fs%s (%.0fs)", what, sum.makespan, sum.turnaround, hits, time.Since(m.began).Seconds())
		return rows, nil
	}
}
