package memory

import (
	"errors"
	"testing"

	"github.com/laxity/laxity/actuator/actuatortest"
	"github.com/laxity/laxity/bench"
	benchrig "github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/needtest"
)

func TestMain(m *testing.M) { actuatortest.Main(m, nil) }

// env is a simulated GPU like a real one that is slow: allocations take time, and
// memory is free some time after its process has ended. Nobody is swapped.
func env(t *testing.T, memory uint64, args map[string]string) bench.Env {
	t.Helper()
	if testing.Short() {
		t.Skip("runs containers for some 10 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	e := bench.Env{Device: "sim", SimulatedMemory: memory, Log: t.Logf, Args: map[string]string{
		"swap": "off", "sim-alloc": "150", "sim-release": "100ms", "stagger": "40ms",
	}}
	for name, value := range args {
		e.Args[name] = value
	}
	return e
}

func skipUnguarded(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, benchrig.ErrNotGuarded) {
		needtest.BPF.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Containers that could come to wait for each other's memory all end.
func TestDeadlock(t *testing.T) {
	for name, tt := range map[string]struct {
		bench.Experiment
		settings map[string]string
	}{
		"two":  {Deadlock(), map[string]string{"rounds": "2"}},
		"late": {Deadlock(), map[string]string{"rounds": "1", "sim-list": "800ms"}},
		"ring": {Ring(), map[string]string{"rounds": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.settings["controls"], tt.settings["after"] = "0", "0.5"
			rows, err := tt.Run(t.Context(), env(t, 0, tt.settings))
			skipUnguarded(t, err)
			for _, r := range rows {
				if r.Num("ended") != r.Num("containers") {
					t.Errorf("%v", r)
				}
			}
			if len(rows) == 0 {
				t.Error("no round")
			}
		})
	}
}

func TestWaysOf(t *testing.T) {
	for text, want := range map[string]int{"fair,adaptive": 2, "default,static,laxity,fair,adaptive,one": 6, "fair,best": 0, "": 0} {
		ways, err := waysOf(bench.Env{Args: map[string]string{"ways": text}})
		if len(ways) != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, ways, err)
		}
	}
	if ways, err := waysOf(bench.Env{}); len(ways) != 3 || err != nil {
		t.Errorf("%v, %v", ways, err)
	}
}

// Static starts as many as the largest fits into 40 GiB; both sets want as much in all.
func TestSets(t *testing.T) {
	for name, want := range map[string]int{"equal": 3, "unequal": 2} {
		sets, err := setsOf(bench.Env{Args: map[string]string{"sets": name}})
		if err != nil || len(sets) != 1 {
			t.Fatalf("%s: %v, %v", name, sets, err)
		}
		var memory uint64
		kernels := 0
		for _, j := range sets[0].jobs {
			memory, kernels = memory+j.memory, kernels+j.kernels
		}
		if got := sets[0].atOnce(static); got != want || sets[0].atOnce(oneByOne) != 1 || sets[0].atOnce(laxity) != 12 || memory != 3*leftFree || kernels != 96 {
			t.Errorf("%s: %d at once, %d GiB, %d kernels", name, got, memory>>30, kernels)
		}
	}
	if _, err := setsOf(bench.Env{Args: map[string]string{"sets": "equal,other"}}); err == nil {
		t.Error("another set is known")
	}
}

// Runs of two portions, and of two sets, are told apart; older rows have a repeat and no set.
func TestRounds(t *testing.T) {
	row := func(set string, run, end float64) bench.Row {
		return bench.Row{"way": static, "set": set, "run": run, "end": end, "took": end / 2, "outcome": "ended", "task": 0.0, "memory_use": 0.5}
	}
	rows := []bench.Row{row("equal", 1, 10), row("equal", 1, 12), row("unequal", 2, 30), row("equal", 3, 14),
		{"way": laxity, "repeat": 0.0, "end": 7.0, "took": 7.0, "outcome": "ended", "task": 0.0}}
	if got := rounds(rows, "equal", static); len(got) != 2 || got[0].makespan != 12 || got[0].mean != 5.5 || got[1].makespan != 14 {
		t.Errorf("equal: %+v", got)
	}
	if got := rounds(rows, "unequal", static); len(got) != 1 || got[0].memory != 0.5 {
		t.Errorf("unequal: %+v", got)
	}
	if got := rounds(rows, "equal", laxity); len(got) != 1 || got[0].makespan != 7 {
		t.Errorf("older rows: %+v", got)
	}
}

// Tasks that do not fit beside each other wait, and none runs out of memory; one after another, each begins when the former one has ended.
func TestOversubscribe(t *testing.T) {
	for way, tasks := range map[string]int{laxity: 5, oneByOne: 3} {
		t.Run(way, func(t *testing.T) { testOversubscribe(t, way, tasks) })
	}
}

func testOversubscribe(t *testing.T, way string, tasks int) {
	r, err := newRig(t.Context(), env(t, leftFree+1<<30, nil), "oversubscribe", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows, err := r.oversubscribeRound(t.Context(), taskSet{"equal", taskSets[0].jobs[:tasks]}, way, 1)
	skipUnguarded(t, err)
	last := 0.0
	for _, row := range rows {
		if row.Str("outcome") != "ended" || way == oneByOne && row.Num("end") <= last {
			t.Errorf("%v", row)
		}
		last = row.Num("end")
	}
	if len(rows) != tasks {
		t.Errorf("%d tasks", len(rows))
	}
}
