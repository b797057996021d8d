package swap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
)

const aboutCycles = `A container multiplies 4096² matrices for ever, checks each result, and makes a checksum of every
element. Another container holds so much of the card that the first one (--set program=torch: a PyTorch program, on an
NVIDIA GPU) just fits beside it and the reserve. The first one is suspended and resumed at random times. A process is lost if it
does not continue; every result must be right, and all checksums equal bit by bit.`

// reserve is what a restore wants free besides, as the Swapper has it by default; contextSize
// what a context takes, and slack what the driver takes besides; bytes.
const (
	mib         = 1 << 20
	reserve     = 256 * mib
	contextSize = 600 * mib
	slack       = 128 * mib
)

// Cycles is many swaps at random times with the card kept nearly full.
func Cycles() bench.Experiment {
	return bench.Experiment{
		Name: "swapcycles", Title: "Suspend and resume at random times with the card kept nearly full", About: aboutCycles,
		Settings: []bench.Setting{
			{Name: "cycles", Means: "how often; 150"},
			{Name: "program", Means: "what is swapped: matmul, or torch on an NVIDIA GPU; matmul"},
		},
		Run: runCycles, Figures: cycleFigures, Table: cycleTable,
	}
}

func runCycles(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	fallback := 150
	if env.Quick {
		fallback = 10
	}
	cycles, err := env.Number("cycles", 1, fallback)
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, env, "swapcycles")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	c, held, err := r.victim(ctx)
	if err != nil {
		return nil, err
	}
	gpus, err := r.swap.Helper.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	free := gpus[0].Total - gpus[0].Used
	if free < contextSize+reserve+slack {
		return nil, fmt.Errorf("the GPU has only %d MiB free", free/mib)
	}
	ballast, err := r.fill(ctx, (free-contextSize-reserve-slack)/mib)
	if err != nil {
		return nil, err
	}
	env.Log("the process holds %d MiB, the ballast %d MiB; %d cycles", held/mib, ballast, cycles)
	random := rand.New(rand.NewPCG(env.Seed, 0))
	for i := range cycles {
		row, err := r.cycle(ctx, c.ID, c.Name, random)
		if err != nil {
			return rows, fmt.Errorf("cycle %d: %w", i, err)
		}
		row["cycle"] = float64(i)
		rows = append(rows, row)
		if (i+1)%25 == 0 {
			env.Log("%d cycles", i+1)
		}
	}
	// Results that were in the making must come out, too.
	before, _, _, err := results(ctx, c)
	for deadline := time.Now().Add(time.Minute); err == nil; {
		verified, wrong, different, rerr := results(ctx, c)
		lost := verified < before+2
		if rerr != nil || !lost || time.Now().After(deadline) {
			return append(rows, bench.Row{"way": "results", "verified": float64(verified), "wrong": float64(wrong),
				"different": float64(different), "lost": lost}), rerr
		}
		err = enforce.Sleep(ctx, 50*time.Millisecond)
	}
	return rows, err
}

// fill starts a container that holds so many MiB, or some less: what the driver
// says is free is a little more than can be had.
func (r *rig) fill(ctx context.Context, most uint64) (mibs uint64, err error) {
	const less = 256
	for mibs = most; mibs+8*less >= most; mibs -= less {
		_, _, _, err = r.start(ctx, "ballast", mibs*mib, "--context-only", "--alloc-extra", strconv.FormatUint(mibs, 10), "--hold", "100000")
		if err == nil || ctx.Err() != nil {
			return mibs, err
		}
	}
	return 0, err
}

// victim starts what is swapped: --set program=torch is PyTorch.
func (r *rig) victim(ctx context.Context) (c *tenant.Tenant, held uint64, err error) {
	switch r.env.Args["program"] {
	case "torch":
		if c, _, _, err = r.startTorch(ctx, 800*mib); err != nil {
			return nil, 0, err
		}
		// It has allocated all that it ever will after some rounds.
		for verified := 0; verified < 3 && err == nil; {
			if verified, _, _, err = results(ctx, c); err == nil {
				err = enforce.Sleep(ctx, 50*time.Millisecond)
			}
		}
	case "", "matmul":
		n := r.GPU.N(4096)
		c, _, _, err = r.start(ctx, "swapcycles", uint64(3*n*n*4), "--n", strconv.Itoa(n), "--repeat", "0", "--verify")
	default:
		err = errors.New("--set program: write matmul or torch")
	}
	if err != nil {
		return nil, 0, err
	}
	_, _, held, err = r.await(ctx, c, 1)
	return c, held, err
}

func (r *rig) cycle(ctx context.Context, id, name string, random *rand.Rand) (bench.Row, error) {
	row := bench.Row{}
	pause := func(most time.Duration) error {
		return enforce.Sleep(ctx, time.Duration(random.Int64N(int64(most))))
	}
	if err := pause(150 * time.Millisecond); err != nil {
		return row, err
	}
	if err := r.byLaxity(ctx, id, name, row); err != nil {
		return row, err
	}
	return row, nil
}

func cycleFigures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	n := len(bench.Column(rows, "cycle", bench.Way(laxity)))
	one := func(key string) float64 { return bench.Median(bench.Column(rows, key, bench.Way("results"))) }
	out = append(out, bench.Figure{Name: "swap_cycles", Value: float64(n), Unit: "cycles", Runs: n})
	return append(out,
		bench.Figure{Name: "swap_cycles_lost", Value: one("lost"), Unit: "processes", Runs: n},
		bench.Figure{Name: "swap_cycles_wrong", Value: one("wrong") + one("different") - 1, Unit: "results", Runs: int(one("verified"))})
}

func cycleTable(rows []bench.Row) [][]string {
	lines := [][]string{{"CYCLES", "SUSPEND s, MEDIAN", "MAX", "RESUME s, MEDIAN", "MAX", "RESULTS", "WRONG", "DIFFERENT", "LOST"}}
	suspend, resume := bench.Column(rows, "suspend_s", bench.Way(laxity)), bench.Column(rows, "resume_s", bench.Way(laxity))
	line := []string{fmt.Sprint(len(suspend)), bench.Number(bench.Median(suspend)), bench.Number(bench.Quantile(suspend, 1)),
		bench.Number(bench.Median(resume)), bench.Number(bench.Quantile(resume, 1))}
	for _, key := range []string{"verified", "wrong", "different", "lost"} {
		line = append(line, bench.Number(bench.Median(bench.Column(rows, key, bench.Way("results")))))
	}
	return append(lines, line)
}
