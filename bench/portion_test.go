package bench_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
)

func TestCheckPortion(t *testing.T) {
	stored := bench.Result{Name: "serve", Machine: "1 × H200", Commit: "a", Settings: map[string]string{"duration": "5s"}}
	for _, c := range []struct {
		change func(*bench.Result)
		says   string // empty: it may be added
	}{
		{func(*bench.Result) {}, ""},
		{func(r *bench.Result) { r.Seed = 2 }, "another --seed (0; now 2)"},
		{func(r *bench.Result) { r.Name = "shares" }, "another experiment (serve; now shares)"},
		{func(r *bench.Result) { r.Machine = "2 × H200" }, "another machine"},
		{func(r *bench.Result) { r.Commit = "b" }, "another commit (a; now b)"},
		{func(r *bench.Result) { r.Settings = nil }, "another --set duration (5s; now none)"},
		{func(r *bench.Result) { r.Settings = map[string]string{"duration": "5s", "ways": "default"} }, "another --set ways (none; now default)"},
	} {
		later := stored
		later.Settings = maps.Clone(stored.Settings)
		c.change(&later)
		for _, earlier := range []bench.Result{stored, stored.Partial()} {
			err := bench.CheckPortion(earlier, later)
			if (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v after %+v: %v, expected %q", later, earlier, err, c.says)
			}
		}
	}
}

// Two builds with changes that are not committed have one commit, and may be of different code.
func TestPortionsAreOfCommittedCode(t *testing.T) {
	r := bench.Result{Name: "serve", Commit: "0123456789ab-dirty"}
	if err := bench.CheckPortion(r, r); err == nil || !strings.Contains(err.Error(), "commit them") {
		t.Errorf("%v", err)
	}
}

func TestSettingsThatRowsShare(t *testing.T) {
	e := bench.Experiment{Settings: []bench.Setting{{Name: "runs", Part: true}, {Name: "duration"}}}
	env := bench.Env{Args: map[string]string{"runs": "3", "duration": "5s"}, Quick: true}
	if got := e.SettingsOf(env); !maps.Equal(got, map[string]string{"duration": "5s", "quick": "true"}) {
		t.Errorf("shared: %v", got)
	}
	if got := e.SettingsOf(bench.Env{Quick: true}); got["quick"] != "true" {
		t.Errorf("without --set: %v", got)
	}
	if len(env.Args) != 2 {
		t.Errorf("what --set says was changed: %v", env.Args)
	}
}

func TestRunsOfPortions(t *testing.T) {
	var env bench.Env
	if got := env.FirstRun(); got != 1 {
		t.Errorf("the first run of all is %d", got)
	}
	env.Earlier = []bench.Row{{"run": 2.0}, {"run": 7.0}, {"way": "default"}, {"run": "20261122"}}
	if got := env.FirstRun(); got != 8 {
		t.Errorf("after run 7 comes %d", got)
	}
	began := time.UnixMilli(1_800_000_000_500)
	rows := []bench.Row{{}, {"run": 9, "time": 5.0, "commit": "?"}}
	bench.Stamp(rows, "abc", 8, began)
	for i, want := range []bench.Row{{"run": 8, "time": 1_800_000_000.5, "commit": "abc"}, {"run": 9, "time": 5.0, "commit": "abc"}} {
		if !maps.Equal(rows[i], want) {
			t.Errorf("row %d is %v, expected %v", i, rows[i], want)
		}
	}
}

func TestRepeat(t *testing.T) {
	env := bench.Env{Earlier: []bench.Row{{"run": 2}, {"run": 1}}}
	failure := errors.New("it fails")
	rows, err := env.Repeat(3, func(number int) ([]bench.Row, error) {
		if number == 5 {
			return []bench.Row{{"run": number}}, failure
		}
		return []bench.Row{{"run": number}}, nil
	})
	if got := bench.Column(rows, "run", nil); !slices.Equal(got, []float64{3, 4}) || !errors.Is(err, failure) {
		t.Errorf("runs %v, %v", got, err)
	}
}

func TestTurned(t *testing.T) {
	for run, want := range map[int]string{1: "b c a", 2: "c a b", 3: "a b c", 4: "b c a"} {
		if got := strings.Join(bench.Turned([]string{"a", "b", "c"}, run), " "); got != want {
			t.Errorf("run %d: %s, want %s", run, got, want)
		}
	}
}
