// Package swap measures how long it takes to swap a container off its GPU and back,
// against the driver's API alone, and whether anything is lost in many cycles.
package swap

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint/libcuda"
	"github.com/laxity/laxity/bench"
)

const about = `A container multiplies 4096² matrices and holds further GPU memory, SIZE in all. It is suspended and resumed by Laxity (helper process, record on disk, Docker pause included),
and its process is locked, checkpointed, restored and unlocked by direct calls of the driver's API,
in turn. swap_vs_driver is the median over the rounds of a whole cycle by Laxity over one by the
driver, at the size where that is worst; the checks before the first step count too.`

const (
	laxity = "laxity"
	driver = "driver"
)

// Experiment is the cost of a swap.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "swap", Title: "Swapping a container off its GPU and back, against the driver's API alone", About: about,
		Settings: []bench.Setting{
			{Name: "sizes", Means: "GB that the containers hold, as 1.4+13; 1.4+13+40"},
			{Name: "rounds", Means: "swaps of each size; 3"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	sizes := []string{"1.4", "13", "40"}
	if env.Quick {
		sizes = sizes[:1]
	}
	if s, ok := env.Args["sizes"]; ok {
		sizes = strings.Split(s, "+")
	}
	rounds, err := env.Number("rounds", 1, 3)
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, env, "swap")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	path, err := r.library()
	if err != nil {
		return nil, err
	}
	library, err := libcuda.Open(path)
	if err != nil {
		return nil, err
	}
	for _, s := range sizes {
		gb, err := strconv.ParseFloat(s, 64)
		if err != nil || gb < 1 {
			return rows, fmt.Errorf("--set sizes: %q is not a number of GB from 1 on, such as 1.4+13", s)
		}
		found, err := r.size(ctx, library, gb, rounds)
		rows = append(rows, found...)
		if errors.Is(err, enforce.ErrCannotSwap) {
			env.Log("%s GB: left out: %v", s, err)
			continue
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// size measures one size of process.
func (r *rig) size(ctx context.Context, library *libcuda.Library, gb float64, rounds int) (rows []bench.Row, err error) {
	bytes := uint64(gb * 1e9)
	extra := int(bytes>>20) - 566 - 3*64 // besides the context and the matrices
	c, pid, held, err := r.start(ctx, "swap", uint64(extra+3)<<20, "--n", strconv.Itoa(r.GPU.N(4096)), "--repeat", "0", "--verify",
		"--alloc-extra", strconv.Itoa(extra))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Remove()) }()
	r.env.Log("%.1f GB: a process that holds %d MiB", gb, held>>20)
	for round := range rounds {
		for i := range 2 {
			row := bench.Row{"size_gb": gb, "bytes": float64(held), "round": float64(round)}
			if (round+i)%2 == 0 {
				err = r.byLaxity(ctx, c.ID, c.Name, row)
			} else {
				err = byDriver(library, pid, row)
			}
			if err != nil {
				return rows, err
			}
			rows = append(rows, row)
			if err := enforce.Sleep(ctx, 100*time.Millisecond); err != nil {
				return rows, err
			}
		}
	}
	_, wrong, different, err := results(ctx, c)
	if err == nil && wrong+different > 1 {
		err = fmt.Errorf("%d wrong results, %d different ones", wrong, different)
	}
	return rows, err
}

func (r *rig) byLaxity(ctx context.Context, id, name string, row bench.Row) error {
	began := time.Now()
	out, err := r.swap.Suspend(ctx, id, name, "measured")
	if err != nil {
		return err
	}
	row["way"], row["suspend_s"] = laxity, time.Since(began).Seconds()
	row["lock_s"], row["checkpoint_s"], row["pause_s"] = out.LockSeconds, out.CheckpointSeconds, out.PauseSeconds
	began = time.Now()
	back, err := r.swap.Resume(ctx, id, nil)
	if err != nil {
		return err
	}
	row["resume_s"] = time.Since(began).Seconds()
	row["unpause_s"], row["restore_s"], row["unlock_s"] = back.UnpauseSeconds, back.RestoreSeconds, back.UnlockSeconds
	return nil
}

// byDriver calls the driver's API in this process.
func byDriver(library *libcuda.Library, pid int, row bench.Row) error {
	row["way"] = driver
	for _, s := range []struct {
		name string
		call func() error
	}{
		{"lock_s", func() error { return library.Lock(pid, 10_000) }},
		{"checkpoint_s", func() error { return library.Checkpoint(pid) }},
		{"restore_s", func() error { return library.Restore(pid) }},
		{"unlock_s", func() error { return library.Unlock(pid) }},
	} {
		began := time.Now()
		if err := s.call(); err != nil {
			return fmt.Errorf("%s of process %d: %w", strings.TrimSuffix(s.name, "_s"), pid, err)
		}
		row[s.name] = time.Since(began).Seconds()
	}
	row["suspend_s"], row["resume_s"] = row.Num("lock_s")+row.Num("checkpoint_s"), row.Num("restore_s")+row.Num("unlock_s")
	return nil
}

// sizesOf lists the sizes of the rows in order.
func sizesOf(rows []bench.Row) []float64 {
	var sizes []float64
	for _, r := range rows {
		if s := r.Num("size_gb"); len(sizes) == 0 || sizes[len(sizes)-1] != s {
			sizes = append(sizes, s)
		}
	}
	return sizes
}

// of is the column of a way at a size; cycle is suspend and resume together.
func of(rows []bench.Row, way string, size float64, key string) []float64 {
	var values []float64
	for _, r := range rows {
		if r.Str("way") != way || r.Num("size_gb") != size {
			continue
		}
		if key == "cycle_s" {
			values = append(values, r.Num("suspend_s")+r.Num("resume_s"))
		} else {
			values = append(values, r.Num(key))
		}
	}
	return values
}

func figures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	worst := bench.Figure{Name: "swap_vs_driver", Unit: "×"}
	for _, size := range sizesOf(rows) {
		ours := of(rows, laxity, size, "cycle_s")
		ratio := bench.Median(ours) / bench.Median(of(rows, driver, size, "cycle_s"))
		out = append(out, bench.Figure{Name: fmt.Sprintf("swap_%gGB_s", size), Value: bench.Median(ours), Unit: "s",
			Against: "the driver's API", Ratio: ratio, Runs: len(ours)})
		if ratio > worst.Value {
			worst.Value, worst.Runs = ratio, len(ours)
		}
	}
	return append(out, worst)
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"GB", "WAY", "LOCK s", "CHECKPOINT s", "PAUSE s", "UNPAUSE s", "RESTORE s", "UNLOCK s", "CYCLE s", "RATIO", "ROUNDS"}}
	for _, size := range sizesOf(rows) {
		base := bench.Median(of(rows, driver, size, "cycle_s"))
		for _, way := range []string{driver, laxity} {
			line := []string{fmt.Sprintf("%g", size), way}
			for _, key := range []string{"lock_s", "checkpoint_s", "pause_s", "unpause_s", "restore_s", "unlock_s", "cycle_s"} {
				line = append(line, bench.Number(bench.Median(of(rows, way, size, key))))
			}
			cycles := of(rows, way, size, "cycle_s")
			lines = append(lines, append(line, fmt.Sprintf("%.3f", bench.Median(cycles)/base), fmt.Sprint(len(cycles))))
		}
	}
	return lines
}
