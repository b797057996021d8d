package overhead

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// slowerWhileWatched are steps that take twice as long while a file says so.
const slowerWhileWatched = `
import os
import time

watched = os.path.join(os.path.dirname(__file__), "watched")


def step(seconds):
    def take():
        time.sleep(seconds * (2 if os.path.exists(watched) else 1))
    return take


phases = [
    {"rounds": 40, "pause": 0.01, "steps": {"small": {"take": step(0.008), "launches": 10}, "large": {"take": step(0.016), "launches": 2}}},
    {"rounds": 1, "pause": 0.01, "steps": {"paced": {"take": step(0.008), "launches": 10}}},
]
`

// A real container, and nobody to watch it but the file.
func TestProgramIsComparedWithItself(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a container for some 5 s")
	}
	const python = "/usr/bin/python3" // of a folder that containers of the host's programs have
	if _, err := os.Stat(python); err != nil {
		needtest.Python.Skip(t, "needs python3:", err)
	}
	r := openRig(t)
	program, err := writeProgram(r.Dir, python, []byte(slowerWhileWatched))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.Dir, "watched")
	start := func(context.Context) (watch, error) {
		return watch{
			tasks: func() int { return 7 },
			stop: func() {
				if err := os.Remove(file); err != nil {
					t.Error(err)
				}
				time.Sleep(40 * time.Millisecond) // the step that goes on is a watched one
			},
		}, os.WriteFile(file, nil, 0o600)
	}
	// A machine that stands still for a block's time leaves no step in it: another try.
	for try := range 5 {
		s, err := program.start(t.Context(), r.Tenants, strconv.Itoa(try), "busy")
		if err != nil {
			t.Fatal(err)
		}
		rows, err := s.measure(t.Context(), plan{blocks: 5, length: 500 * time.Millisecond}, start)
		if err == nil {
			err = twiceAsLong(rows)
		}
		if err == nil {
			return
		}
		if try == 4 {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

// twiceAsLong returns what is wrong with the rows of 5 blocks in which watched steps took twice as long. What a
// sleep lasts too long makes the ratio smaller.
func twiceAsLong(rows []bench.Row) error {
	if len(rows) != 15 {
		return fmt.Errorf("%d rows, want one for each of 5 blocks and 3 kinds of step", len(rows))
	}
	for _, row := range rows {
		row["container"] = 0.0
		if row.Num("steps") < 2 || (row.Str("way") == "busy") != (row.Num("tasks_seen") == 7) {
			return fmt.Errorf("row %v", row)
		}
	}
	for _, loop := range kinds {
		all := pairs(rows, "busy", loop)
		if got := bench.Median(of(all, pair.ratio)); len(all) != 4 || got < 1.4 || got > 2.2 {
			return fmt.Errorf("%s: %d pairs, %.3f times as long while watched; want 4, 2", loop, len(all), got)
		}
	}
	return nil
}

// An exporter meets a task that runs already, more than once.
func TestWatchWith(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 5 s")
	}
	r := openRig(t)
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			c, err := r.Tenants.Start(t.Context(), tenant.Spec{
				Name: "laxity-" + r.Name, Labels: map[string]string{task.LabelRelease: release},
				Args: []string{"--n", strconv.Itoa(r.GPU.N(1024)), "--kernels", "1", "--repeat", "0", "--gap", "0.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Remove(); err != nil {
					t.Error(err)
				}
			}()
			for range 2 {
				w, err := watchWith(t.Context(), r, c.ID, release)
				if err != nil {
					t.Fatal(err)
				}
				if w.tasks() < 1 {
					t.Error("in effect without a task")
				}
				w.stop()
			}
		})
	}
}

func openRig(t *testing.T) *rig.Rig {
	t.Helper()
	simtest.Docker(t)
	simtest.Library(t)
	r, err := rig.Open(t.Context(), bench.Env{Device: "sim", Log: t.Logf}, "overhead-test", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestStepsBelongToTheBlockThatHoldsThem(t *testing.T) {
	blocks := []block{{began: 0, end: 10}, {watched: true, tasks: 3, began: 12, end: 20}}
	taken := []steps{{Loop: "small", Launches: 5, Steps: [][2]float64{
		{-1, 1}, {1, 2}, {2, 4}, {9, 11}, {11, 13}, {13, 16}, {19, 21},
	}}, {Loop: "paced", Phase: 1, Steps: [][2]float64{{2, 3}}}}
	rows, err := rowsOf("busy", blocks, taken)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	for i, want := range []struct {
		way                string
		steps, median, low float64
	}{{without, 2, 1.5, 1.1}, {"busy", 1, 3, 3}} {
		if r := rows[i]; r.Str("way") != want.way || r.Num("steps") != want.steps || r.Num("step_s") != want.median || r.Num("step_low_s") != want.low {
			t.Errorf("block %d: %v, want %+v", i, r, want)
		}
	}
	if _, err := rowsOf("busy", append(blocks, block{began: 30, end: 31}), taken); err == nil {
		t.Error("no error for a block in which no step is")
	}
}

// What one process differs from another by is in no figure.
func TestFigures(t *testing.T) {
	var rows []bench.Row
	for container, speed := range []float64{1, 2, 0.5} {
		for i, step := range []float64{10, 10.2, 10, 10.4, 10} {
			way := without
			if i%2 == 1 {
				way = "busy"
			}
			rows = append(rows, bench.Row{"release": "busy", "way": way, "container": float64(container), "block": float64(i),
				"loop": "small", "launches": 1000.0, "step_low_s": speed * step / 1000, "step_s": speed * step / 500})
		}
	}
	want := map[string]struct{ value, ratio float64 }{
		"small_step_busy":          {10.3, 1.03},
		"small_per_launch_busy_us": {0.3, 0},
	}
	for _, f := range figures(rows) {
		w, ok := want[f.Name]
		if !ok {
			if !math.IsNaN(f.Value) {
				t.Errorf("%s = %v of no rows", f.Name, f.Value)
			}
			continue
		}
		if math.Abs(f.Value-w.value) > 1e-9 || math.Abs(f.Ratio-w.ratio) > 1e-9 || f.Runs != 12 {
			t.Errorf("%+v, want %+v of 12 pairs", f, w)
		}
	}
}
