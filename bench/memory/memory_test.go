package memory

import (
	"errors"
	"testing"

	"github.com/laxity/laxity/actuator/actuatortest"
	"github.com/laxity/laxity/bench"
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
	if errors.Is(err, errNotGuarded) {
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
	for text, want := range map[string]int{"fair,adaptive": 2, "default,laxity,fair,adaptive,one": 5, "fair,best": 0, "": 0} {
		ways, err := waysOf(bench.Env{Args: map[string]string{"ways": text}})
		if len(ways) != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, ways, err)
		}
	}
	if ways, err := waysOf(bench.Env{}); len(ways) != 3 || err != nil {
		t.Errorf("%v, %v", ways, err)
	}
}

// Tasks that do not fit beside each other wait, and none runs out of memory.
func TestOversubscribe(t *testing.T) {
	r, err := newRig(t.Context(), env(t, leftFree+1<<30, nil), "oversubscribe", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	rows, err := r.oversubscribeRound(t.Context(), 5, laxity, 0)
	skipUnguarded(t, err)
	for _, row := range rows {
		if row.Str("outcome") != "ended" {
			t.Errorf("%v", row)
		}
	}
	if len(rows) != 5 {
		t.Errorf("%d tasks", len(rows))
	}
}
