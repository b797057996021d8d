package bench_test

import (
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
)

func TestCheckSettings(t *testing.T) {
	e := bench.Experiment{Name: "events", Settings: []bench.Setting{{Name: "tasks", Means: "how many"}}}
	if err := e.CheckSettings(map[string]string{"tasks": "3"}); err != nil {
		t.Error(err)
	}
	err := e.CheckSettings(map[string]string{"tasks": "3", "task": "3"})
	if err == nil || !strings.Contains(err.Error(), `"task"`) || !strings.Contains(err.Error(), "--set tasks=: how many") {
		t.Errorf("%v; want the wrong one, and what there is", err)
	}
	if err := (bench.Experiment{}).CheckSettings(map[string]string{"x": ""}); err == nil {
		t.Error("an experiment without settings takes one")
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]int{"": -1, "x": -1, "0": -1, "1": 1, "20": 20} {
		n, err := bench.Env{Args: map[string]string{"n": text}}.Number("n", 1, 7)
		if (err == nil) != (want > 0) || err == nil && n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	if n, err := (bench.Env{}).Number("n", 1, 7); n != 7 || err != nil {
		t.Errorf("not set: %d, %v", n, err)
	}
}
