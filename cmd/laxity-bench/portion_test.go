package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
)

// portioned takes one run a portion. It fails after that run if ctx has ended.
var portioned = bench.Experiment{
	Name: "portioned", Title: "In portions", Portions: true, Settings: []bench.Setting{{Name: "ways"}},
	Run: func(ctx context.Context, env bench.Env) ([]bench.Row, error) {
		return []bench.Row{{"run": env.FirstRun(), "way": "laxity"}}, ctx.Err()
	},
	Figures: func(rows []bench.Row) []bench.Figure {
		return []bench.Figure{{Name: "last_run", Value: rows[len(rows)-1].Num("run"), Runs: len(rows)}}
	},
	Table: func([]bench.Row) [][]string { return [][]string{{"RUN"}} },
}

func TestPortionsMakeOneResult(t *testing.T) {
	dir := t.TempDir()
	whole, cut := filepath.Join(dir, "portioned.json"), filepath.Join(dir, "portioned.partial.json")
	portion := func(ctx context.Context, add string, args map[string]string) error {
		var out, errs strings.Builder
		env := bench.Env{Device: "sim", Args: args, Log: func(string, ...any) {}}
		return newCLI(&out, &errs).measure(ctx, portioned, env, output{folder: dir, add: add})
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := portion(stopped, "", nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("it was stopped: %v", err)
	}
	if _, err := os.Stat(whole); err == nil {
		t.Error("what was stopped is stored as if it were whole")
	}
	for i, from := range []string{cut, whole} {
		if err := portion(t.Context(), from, nil); err != nil {
			t.Fatalf("portion %d: %v", i+2, err)
		}
	}
	r, err := bench.ReadResult(os.DirFS(dir), "portioned.json")
	if err != nil || len(r.Rows) != 3 || r.Figures[0].Value != 3 || r.Figures[0].Runs != 3 || r.Settings == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, row := range r.Rows {
		if row.Num("run") != float64(i+1) || row["commit"] != r.Commit && r.Commit != "" || !(row.Num("time") > 0) {
			t.Errorf("row %d is %v", i, row)
		}
	}
	if err := portion(t.Context(), whole, map[string]string{"ways": "default"}); err == nil || !strings.Contains(err.Error(), "--set ways") {
		t.Errorf("other settings: %v", err)
	}
	if err := portion(t.Context(), filepath.Join(dir, "none.json"), nil); err == nil || !strings.Contains(err.Error(), "--add") {
		t.Errorf("a result that is not there: %v", err)
	}
}
