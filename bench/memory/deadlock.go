package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
)

const deadlockAbout = `P5's memory deadlock: two containers each hold 40 % of the card and each want 40 % more, asking
every 0.1 s until they get it; then they compute for a moment and end. By default they carry no
label; with laxity each carries laxity.gpu-memory, the sum of what it holds and wants, which makes it
wait. A round is stuck if a container has not ended after 10 s (default) or 60 s (laxity); it is
killed then.`

const ringAbout = `Three containers hold and want on two GPUs: two hold 40 % of GPU 0 each and want 40 % of GPU 1,
the other one holds 80 % of GPU 1 and wants 40 % of GPU 0. With laxity each carries
laxity.gpu-memory, the sum of what it holds and wants on a GPU. Otherwise as deadlock.`

// Deadlock is P5's two containers.
func Deadlock() bench.Experiment {
	return deadlock("deadlock", "Two containers that wait for each other's memory (P5)", deadlockAbout, "two", 1)
}

// Ring is three containers that wait for each other in a ring over two GPUs.
func Ring() bench.Experiment {
	return deadlock("deadlock-2gpus", "Three containers that wait for each other's memory in a ring over two GPUs", ringAbout, "ring", 2)
}

func deadlock(name, title, about, shape string, gpus int) bench.Experiment {
	return bench.Experiment{
		Name: name, Title: title, About: about,
		Settings: append([]bench.Setting{
			{Name: "rounds", Means: "rounds with Laxity; 100"},
			{Name: "controls", Means: "rounds without; 5"},
			{Name: "stagger", Means: "from the start of one container to that of the next, such as 50ms; none"},
			{Name: "after", Means: "seconds from holding to asking for more; 1"},
			{Name: "verbose", Means: "any value: the logs of exporter and actuator on the standard error"},
			{Name: "swap", Means: "off: no container is swapped out; on"},
		}, bench.Simulation...),
		Run: func(ctx context.Context, env bench.Env) ([]bench.Row, error) {
			return runDeadlock(ctx, env, shape, gpus)
		},
		Figures: deadlockFigures, Table: deadlockTable,
	}
}

// want is what one container does: GPUs by number.
type want struct {
	holds, asks int
	parts       uint64 // how many times 40 % it holds
}

var shapes = map[string][]want{
	"two":  {{0, 0, 1}, {0, 0, 1}},
	"ring": {{0, 1, 1}, {1, 0, 2}, {0, 1, 1}},
}

const (
	heldShare    = 0.4
	stuckWithout = 10 * time.Second
	stuckWith    = 60 * time.Second
)

func runDeadlock(ctx context.Context, env bench.Env, shape string, gpus int) (rows []bench.Row, err error) {
	rounds, controls := 100, 5
	if env.Quick {
		rounds, controls = 3, 1
	}
	if rounds, err = env.Number("rounds", 1, rounds); err != nil {
		return nil, err
	}
	if controls, err = env.Number("controls", 0, controls); err != nil {
		return nil, err
	}
	all := shapes[shape]
	r, err := newRig(ctx, env, "deadlock", gpus)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	total, err := r.smallestGPU(ctx, gpus)
	if err != nil {
		return nil, err
	}
	for i := range controls {
		more, err := r.deadlockRound(ctx, shape, all, total, without, i)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more)
	}
	stop, err := r.Guard(ctx, r.env, config.Config{Arbitrate: config.Always, MemoryWait: stuckWith})
	if err != nil {
		return rows, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for i := range rounds {
		more, err := r.deadlockRound(ctx, shape, all, total, laxity, i)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more)
	}
	return rows, nil
}

// smallestGPU is the memory of the smallest of the first GPUs, bytes.
func (r *rig) smallestGPU(ctx context.Context, count int) (uint64, error) {
	reading, err := r.Read(ctx)
	if err != nil {
		return 0, err
	}
	if len(reading.GPUs) < count {
		return 0, fmt.Errorf("%d GPUs are needed, and this machine has %d", count, len(reading.GPUs))
	}
	least := uint64(math.MaxUint64)
	for _, g := range reading.GPUs[:count] {
		least = min(least, g.MemoryTotal)
	}
	return least, nil
}

// deadlockRound lets the containers of a shape begin at once and returns how that
// ended.
func (r *rig) deadlockRound(ctx context.Context, shape string, all []want, total uint64, way string, round int) (bench.Row, error) {
	part := uint64(heldShare * float64(total))
	limit := stuckWithout
	if way == laxity {
		limit = stuckWith
	}
	roundCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	var tenants []*tenant.Tenant
	defer func() {
		for _, t := range tenants {
			_ = t.Remove() // the runner's Close tries again
		}
	}()
	for _, w := range all {
		most := 2 * part // on one GPU; a context each besides
		if w.holds != w.asks {
			most = w.parts * part
		}
		labels := map[string]string{}
		if way == laxity {
			labels["laxity.gpu-memory"] = strconv.FormatUint(most+2<<30, 10)
		}
		t, err := r.create(ctx, labels, "--device", strconv.Itoa(w.holds), "--alloc-extra", mib(w.parts*part),
			"--more", mib(part), "--more-after", cmp.Or(r.env.Args["after"], "1"), "--more-device", strconv.Itoa(w.asks),
			"--n", strconv.Itoa(r.GPU.N(2048)), "--kernels", "1")
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, t)
	}
	if err := r.startAll(ctx, tenants); err != nil {
		return nil, err
	}
	outcome := make([]string, len(tenants))
	var wait sync.WaitGroup
	for i, t := range tenants {
		wait.Go(func() { outcome[i] = r.outcome(ctx, roundCtx, t) })
	}
	wait.Wait()
	row := bench.Row{"way": way, "shape": shape, "round": round, "containers": len(all), "seconds": time.Since(began).Seconds(), "ended": 0, "stuck": 0, "failed": 0}
	for i, o := range outcome {
		switch o {
		case "ended", "stuck":
			row[o] = int(row.Num(o)) + 1
		default:
			row["failed"] = int(row.Num("failed")) + 1
			r.env.Log("%s, round %d, %s: container %d: %s", shape, round, way, i, o)
		}
	}
	r.env.Log("%s, round %d, %s: %v of %d ended, %v stuck, %v failed, %.1fs", shape, round, way, row["ended"], len(all), row["stuck"], row["failed"], row.Num("seconds"))
	return row, ctx.Err()
}

// startAll starts them in the same moment, or one after the other by the setting
// stagger.
func (r *rig) startAll(ctx context.Context, tenants []*tenant.Tenant) error {
	stagger, _ := time.ParseDuration(r.env.Args["stagger"])
	errs := make([]error, len(tenants))
	var wait sync.WaitGroup
	for i, t := range tenants {
		wait.Go(func() {
			time.Sleep(time.Duration(i) * stagger)
			errs[i] = t.Start(ctx)
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// outcome of a tenant: ended, stuck, or what it said.
func (r *rig) outcome(ctx, roundCtx context.Context, t *tenant.Tenant) string {
	err := t.Wait(roundCtx)
	switch {
	case err == nil:
		return "ended"
	case roundCtx.Err() != nil && ctx.Err() == nil:
		return "stuck"
	default:
		return err.Error()
	}
}

func mib(bytes uint64) string { return strconv.FormatUint(bytes>>20, 10) }

func deadlockFigures(rows []bench.Row) (out []bench.Figure) {
	for _, shape := range []string{"two", "ring"} {
		share := func(way string) (float64, int) {
			ok, n := 0, 0
			for _, r := range rows {
				if r.Str("way") == way && r.Str("shape") == shape {
					n++
					if r.Num("ended") == r.Num("containers") {
						ok++
					}
				}
			}
			return float64(ok) / float64(n), n
		}
		with, n := share(laxity)
		if n == 0 {
			continue
		}
		before, _ := share(without)
		out = append(out, bench.Figure{Name: "deadlock_" + shape + "_all_ended", Value: with, Unit: "of the rounds", Against: without, Ratio: with / before, Runs: n})
	}
	return out
}

func deadlockTable(rows []bench.Row) [][]string {
	table := [][]string{{"SHAPE", "WAY", "ROUNDS", "ALL ENDED", "CONTAINERS STUCK", "OUT OF MEMORY", "MEDIAN s", "MAX s"}}
	for _, shape := range []string{"two", "ring"} {
		for _, way := range []string{without, laxity} {
			keep := func(r bench.Row) bool { return r.Str("way") == way && r.Str("shape") == shape }
			seconds := bench.Column(rows, "seconds", keep)
			if len(seconds) == 0 {
				continue
			}
			all, stuck, failed := 0, 0.0, 0.0
			for _, r := range rows {
				if keep(r) {
					stuck, failed = stuck+r.Num("stuck"), failed+r.Num("failed")
					if r.Num("ended") == r.Num("containers") {
						all++
					}
				}
			}
			table = append(table, []string{shape, way, fmt.Sprint(len(seconds)), fmt.Sprint(all), bench.Number(stuck), bench.Number(failed),
				bench.Number(bench.Median(seconds)), bench.Number(bench.Quantile(seconds, 1))})
		}
	}
	return table
}
