package gang

import (
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
)

func expectGood(t *testing.T, rows []bench.Row, cycles int) {
	t.Helper()
	value := map[string]float64{}
	for _, f := range Experiment().FiguresOf(rows) {
		value[f.Name] = f.Value
	}
	for _, zero := range []string{"gang_calls_failed", "gang_stuck", "gang_moved_while_off", "gang_wrong", "gang_ended_badly"} {
		if n, ok := value[zero]; !ok || n != 0 {
			t.Errorf("%s = %v (known: %v)", zero, n, ok)
		}
	}
	if value["gang_skew_max_ms"] <= 0 || value["gang_processes_skew_median_ms"] <= 0 || value["gang_one_skew_median_ms"] <= 0 {
		t.Errorf("no skew: %v", value)
	}
	for _, job := range allJobs {
		if n := len(of(rows, job)); n != cycles {
			t.Errorf("%s: %d cycles, want %d", job, n, cycles)
		}
	}
	if t.Failed() {
		for _, line := range table(rows) {
			t.Log(line)
		}
	}
}

// Real processes on two simulated GPUs.
func TestProcesses(t *testing.T) {
	simtest.Library(t)
	rows, err := run(t.Context(), bench.Env{Device: "sim", Log: t.Logf, Quick: true, Seed: 1, Args: map[string]string{"in": inProcess}})
	if err != nil {
		t.Fatal(err)
	}
	expectGood(t, rows, 10)
}

// Real containers on two simulated GPUs.
func TestContainers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 5 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	rows, err := run(t.Context(), bench.Env{Device: "sim", Log: t.Logf, Quick: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	expectGood(t, rows, 10)
}

func TestSettings(t *testing.T) {
	for _, bad := range []map[string]string{{"cycles": "0"}, {"jobs": "three"}, {"in": "pod"}, {"off": "1"}} {
		if _, err := read(bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

func TestFigures(t *testing.T) {
	rows := []bench.Row{
		{"job": one, "off_skew_s": 0.001, "on_skew_s": 0.003, "failed": false, "stuck": false, "moved": true},
		{"job": one, "failed": true, "stuck": false, "error": "refused"},
		{"job": one, "end": true, "steps": 9, "wrong": 2, "ended_badly": true},
	}
	want := map[string]float64{"gang_skew_median_ms": 2, "gang_skew_max_ms": 3, "gang_one_skew_max_ms": 3, "gang_calls_failed": 1, "gang_stuck": 0, "gang_moved_while_off": 1, "gang_wrong": 2, "gang_ended_badly": 1}
	got := map[string]float64{}
	for _, f := range Experiment().FiguresOf(rows) {
		got[f.Name] = f.Value
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s = %v, want %v", name, got[name], v)
		}
	}
	if _, ok := got["gang_skew_p99_ms"]; ok {
		t.Error("a p99 of two")
	}
	if lines := table(rows); len(lines) != 1+3+1+1 || lines[3][4] != "-" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}
