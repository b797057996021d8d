// Package zoo runs many kinds of programs that nobody tuned Laxity to, each checking
// its own result, in rounds of containers with random labels under random settings and
// faults, with Laxity and without it, and counts the containers that Laxity harmed.
package zoo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
)

const about = `Rounds of 4 to 10 containers that start at random times within 1.5 s. Their programs are drawn from many
kinds: CUDA runtime (with a host phase between context and first allocation), driver API, PyTorch (eager, graphs, DataLoader
workers, spawned processes), streams, several contexts, allocations from many threads, fork and spawn, short tasks in a row,
servers, exec, signal handlers, programs that stop and continue themselves, that crash, that run out of memory, that bring a
libcuda of their own. Each checks its own result. Labels are random, none and invalid ones included. Half of the rounds are
under the default flags of laxity up, the others under random policies, arbitration, memory guard, memory shares and swap, as
laxity up or as three programs. In two of five rounds a program is killed: a tenant, the exporter, the actuator, the guardian, the last
two together, or the container engine; or Laxity is asked to end in the middle. The same draw runs without Laxity in the same minute, the two in turns;
--reference can say: only every N-th.

A watcher polls all processes: a container is stuck if it has not ended in time, or was stopped or off its GPU for more than a
second with no reason on record. It failed if its exit status differs from that without Laxity, and is wrong if its result does.
Stray are containers without a label (or with pause=never) that were stopped at all, were off, or had a time slice that is not
their own, and whatever Laxity leaves behind: a record, or a slice of a living process. The simulated GPU tells which processes
are off or have another slice; no driver does. The seed determines the round.`

var (
	laxityAt = bench.Setting{Name: "laxity", Means: "path of the laxity program; the others are beside it; default: beside this one, or on PATH", Flag: true, Part: true}
	ofEngine = bench.Setting{Name: "engine", Means: engineMeans, Flag: true}
)

// settings are flags of the command.
var settings = []bench.Setting{
	{Name: "rounds", Means: "how many rounds; 12, or as many as --for has time for", Flag: true, Part: true},
	{Name: "for", Means: "no round begins later than this, such as 9m", Flag: true, Part: true},
	{Name: "containers", Means: "containers of each round; 4 to 10", Flag: true},
	{Name: "reference", Means: "which rounds also run without Laxity: all, or N for every N-th, 0 for none; all", Flag: true, Part: true},
	{Name: "programs-only", Means: "run each program once alone, without Laxity, print what came of it, and store nothing", Flag: true, Switch: true, Part: true},
	laxityAt, ofEngine,
	{Name: "only", Means: "comma-separated kinds of programs to draw from, or to run", Flag: true},
}

// Experiment is the zoo.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "zoo", Title: "The zoo: programs that nobody tuned to", About: about,
		Settings: append(settings, bench.Simulation...), Portions: true, Run: run, Figures: figures, Table: table,
	}
}

// plan is what the settings ask for.
type plan struct {
	rounds, containers, reference int
	most                          time.Duration // 0: no bound
	programsOnly                  bool
}

func planOf(env bench.Env) (p plan, err error) {
	fallback := 12
	if env.Quick {
		fallback = 2
	}
	if text, ok := env.Args["for"]; ok {
		if p.most, err = time.ParseDuration(text); err != nil || p.most <= 0 {
			return p, fmt.Errorf("--for=%s: write a duration such as 9m", text)
		}
		fallback = 1 << 20
	}
	for name, n := range map[string]struct {
		to          *int
		least, most int
	}{"rounds": {&p.rounds, 0, fallback}, "containers": {&p.containers, 1, 0}} {
		if *n.to, err = env.Number(name, n.least, n.most); err != nil {
			return p, err
		}
	}
	p.reference = 1
	if text := env.Args["reference"]; text != "" && text != "all" {
		if p.reference, err = strconv.Atoi(text); err != nil || p.reference < 0 {
			return p, fmt.Errorf("--reference=%s: write all, or a whole number", text)
		}
	}
	p.programsOnly = env.Args["programs-only"] == "true"
	return p, nil
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	p, err := planOf(env)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	m, err := open(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	from, err := m.pool(env, p)
	if err != nil {
		return nil, err
	}
	env.Log("%d kinds of programs", len(from.kinds))
	if p.programsOnly {
		return nil, m.programsOnly(ctx, from)
	}
	return playRounds(ctx, env, p, began, from, func(i int, r round) (bench.Row, error) {
		return m.both(ctx, r, p.reference > 0 && i%p.reference == 0, i%2 == 1)
	})
}

// playRounds plays until the third round in a row that could not be played.
func playRounds(ctx context.Context, env bench.Env, p plan, began time.Time, from pool, play func(i int, r round) (bench.Row, error)) (rows []bench.Row, err error) {
	add := rowsFrom(env, &rows)
	for i, failed := 0, 0; i < p.rounds && (p.most == 0 || time.Since(began) < p.most); i++ {
		r := from.draw(env.Seed + uint64(env.FirstRun()-1+i)) // no portion plays the rounds of an earlier one
		row, err := play(i, r)
		if err != nil {
			if ctx.Err() != nil {
				return rows, err
			}
			if _, ours := errors.AsType[*notStartedError](err); ours {
				add(notStartedRow(r, err))
			} else {
				add(bench.Row{"way": unplayed, "seed": float64(r.seed), "settings": settingsOf(r), "error": err.Error()})
			}
			if failed++; failed == 3 {
				return rows, err
			}
			env.Log("round %d (seed %d) could not be played: %v", i+1, r.seed, err)
			continue
		}
		failed = 0
		add(row)
		env.Log("%s", progress(i+1, row))
	}
	return rows, nil
}

// rowsFrom returns a function that adds a row. Each is a run.
func rowsFrom(env bench.Env, rows *[]bench.Row) func(bench.Row) {
	number := env.FirstRun()
	return func(r bench.Row) {
		r["run"], r["time"] = number, float64(time.Now().UnixMilli())/1e3
		number++
		*rows = append(*rows, r)
	}
}

// pool is what this machine can draw from.
func (m *machine) pool(env bench.Env, p plan) (pool, error) {
	can := map[string]bool{}
	for from := range m.programs {
		can[from] = true
	}
	out := pool{kinds: kindsFrom(can), engine: m.engine.service() != nil, containers: p.containers}
	if only := env.Args["only"]; only != "" {
		var kept []kind
		for _, k := range out.kinds {
			for name := range strings.SplitSeq(only, ",") {
				if k.name == strings.TrimSpace(name) {
					kept = append(kept, k)
				}
			}
		}
		if out.kinds = kept; len(kept) == 0 {
			return out, fmt.Errorf("--only=%s: no such kind here", only)
		}
	}
	return out, nil
}

// Bounds of how long a round may take: without Laxity, and with it by how long it took
// without.
const (
	boundWithout = 60 * time.Second
	boundUnknown = 40 * time.Second // with Laxity, where the reference comes afterwards
	leastBound   = 25 * time.Second
)

// both plays a round with Laxity and, as the reference, without it.
func (m *machine) both(ctx context.Context, r round, reference, referenceFirst bool) (bench.Row, error) {
	var ours, theirs outcome
	var err error
	play := func(way string, out *outcome) {
		if err != nil {
			return
		}
		bound := boundWithout
		if way == with {
			bound = m.bound
			if theirs.seconds > 0 {
				bound = max(leastBound, 4*time.Duration(theirs.seconds*float64(time.Second)))
			}
		}
		*out, err = m.play(ctx, r, way, bound)
	}
	if reference && referenceFirst {
		play(without, &theirs)
	}
	play(with, &ours)
	if reference && !referenceFirst {
		play(without, &theirs)
	}
	if err != nil {
		return nil, err
	}
	return rowOf(r, ours, theirs, reference), nil
}

// programsOnly runs each kind once, alone and without Laxity.
func (m *machine) programsOnly(ctx context.Context, from pool) error {
	bad := 0
	for i, k := range from.kinds {
		one := pool{kinds: []kind{k}, containers: 1}
		r := one.draw(m.env.Seed)
		r.deaths, r.containers[0].labels, r.containers[0].after = nil, nil, 0
		out, err := m.play(ctx, r, without, boundWithout)
		if err != nil {
			return err
		}
		e, word := out.ends[0], "ok   "
		if !e.right(k) {
			bad++
			word = "WRONG"
		}
		m.env.Print("%s %-16s %5.2f s  status %d  %s  (%s) %s", word, k.name, e.seconds, e.code, e.result, strings.Join(r.containers[0].args, " "), out.said[0])
		m.env.Log("%d of %d programs", i+1, len(from.kinds))
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d programs do not end as they should", bad, len(from.kinds))
	}
	return bench.ErrPrinted
}
