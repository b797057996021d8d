package channels

import (
	"math"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
)

func TestFigures(t *testing.T) {
	rows := []bench.Row{
		{"part": "switch", "way": byChannels, "off_s": 0.001, "off_call_s": 0.001, "on_s": 0.001, "on_call_s": 0.001, "moved": false, "stuck": false},
		{"part": "switch", "way": byChannels, "off_s": 0.003, "off_call_s": 0.003, "on_s": 0.002, "on_call_s": 0.003, "moved": true, "stuck": false},
		{"part": "switch", "way": byPause, "off_s": 0.4, "off_call_s": 0.02, "on_call_s": 0.02, "ran_on": true},
		{"part": "switch", "way": byChannels, "wrong": true, "compared": true},
		{"part": "startups", "way": switched, "off_s": 0.005, "off_call_s": 0.006, "on_s": 0.007, "on_call_s": 0.003, "moved": false},
		{"part": "startups", "way": switched, "start_s": 1.1}, {"part": "startups", "way": switched, "start_s": 1.3},
		{"part": "startups", "way": unswitched, "start_s": 1.0},
		{"part": "find", "way": newOne, "find_s": 0.01, "calls": 100}, {"part": "find", "way": newOne, "find_s": 0.03, "calls": 300},
		{"part": "find", "way": oldOne, "find_s": 8.0, "calls": 1e6, "missed": false},
		{"part": "ends", "way": "exit()", "gone_s": 0.1, "free_s": 0.2, "kept": false, "stuck": false, "on_record": 0},
		{"part": "ends", "way": "SIGKILL", "gone_s": 0.3, "free_s": 0.4, "kept": true, "stuck": false, "on_record": 1},
		{"part": partOn, "way": "exit()", "gone_s": 0.1, "free_s": 0.1, "kept": false, "stuck": false, "on_record": 0},
		{"part": "ends", "way": byDestroy, "gone_s": 0.2, "free_s": 0.2, "kept": false, "stuck": false, "on_record": 0},
		{"part": partOn, "way": byDestroy, "gone_s": 0.5, "free_s": 0.5, "kept": false, "stuck": false, "on_record": 0},
		{"part": "kills", "way": killedOne, "off": 2, "left": 4, "undone_s": 0.3, "stuck": false, "wrong": false},
		{"part": "kills", "way": killedBoth, "off": 0, "left": 1, "undone_s": 0.5, "stuck": true, "wrong": false},
		{"part": "kills", "way": killedOne, "off": 0, "left": 0, "undone_s": 9.0, "stuck": false, "wrong": false}, // there was nothing to undo
		{"part": "kills", "way": "results", "wrong": true},
	}
	type want struct{ value, ratio float64 }
	wants := map[string]want{
		"kernel_off_median_ms": {2, 0}, "kernel_off_call_median_ms": {2, 0.1}, "kernel_on_median_ms": {1.5, 0},
		"kernel_on_call_median_ms": {2, 0.1}, "kernel_moved_while_off": {1, 0}, "kernel_stuck": {0, 0}, "kernel_wrong": {1, 0}, "paused_kernels_that_ran_on": {1, 0},
		"startups_mean_s": {1.2, 1.2}, "startups_kernel_off_median_ms": {5, 0}, "startups_kernel_moved_while_off": {0, 0},
		"find_new_median_ms": {20, 0}, "find_new_max_ms": {30, 0}, "find_new_calls": {200, 0}, "find_old_ms": {8000, 0}, "find_old_calls": {1e6, 0}, "find_old_missed": {0, 0},
		"ends_gone_max_ms": {300, 0.6}, "ends_memory_free_median_ms": {200, 0.2 / 0.3}, "ends_destroy_memory_free_median_ms": {200, 0.4}, "ends_memory_kept": {1, 0}, "ends_left_on_record": {1, 0}, "ends_stuck": {0, 0},
		"kills_undone_max_ms": {300, 0}, "kills_both_undone_after_start_max_ms": {500, 0}, "kills_stuck": {1, 0}, "kills_wrong": {1, 0}, "kills_with_somebody_off": {1, 0},
	}
	for _, f := range Experiment().FiguresOf(rows) {
		w, ok := wants[f.Name]
		if delete(wants, f.Name); ok && (math.Abs(f.Value-w.value) > 1e-9 || math.Abs(f.Ratio-w.ratio) > 1e-9) {
			t.Errorf("%s = %v (%v × %s), want %v (%v)", f.Name, f.Value, f.Ratio, f.Against, w.value, w.ratio)
		}
	}
	if len(wants) > 0 {
		t.Errorf("missing: %v", wants)
	}
}

// A p99 is of 100 samples at least, and so is what it is compared with.
func TestP99NeedsSamples(t *testing.T) {
	var rows []bench.Row
	for range 100 {
		rows = append(rows, bench.Row{"part": partSwitch, "way": byChannels, "off_call_s": 0.001})
	}
	for range 20 {
		rows = append(rows, bench.Row{"part": partSwitch, "way": byPause, "off_call_s": 0.02}, bench.Row{"part": partFind, "way": newOne, "find_s": 0.01})
	}
	for _, f := range Experiment().FiguresOf(rows) {
		if f.Name == "kernel_off_call_p99_ms" && (f.Value != 1 || f.Against != "") || f.Name != "kernel_off_call_p99_ms" && strings.Contains(f.Name, "p99") {
			t.Errorf("%+v", f)
		}
	}
}

func TestTable(t *testing.T) {
	lines := table([]bench.Row{
		{"part": "switch", "way": byChannels, "off_s": 0.001}, {"part": "switch", "way": byChannels, "off_s": 0.003},
		{"part": "switch", "way": byPause, "off_call_s": 0.02, "ran_on": true},
		{"part": "kills", "cannot": "no laxity"},
	})
	for i, want := range []string{"PART", "switch|decision → the kernel's last beat|channels|2|1.500|2|2.500|-|3",
		"switch|decision → off, the call returned|docker pause|1|20|20|20|-|20", "pause|1 of 1 kernels ran on", "kills|cannot: no laxity"} {
		if i >= len(lines) || !strings.HasPrefix(strings.Join(lines[i], "|"), want) {
			t.Fatalf("line %d of %v, want %s", i, lines, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, args := range []map[string]string{{"parts": "switch,nonsense"}, {"cycles": "0"}, {"kernel": "30s"}, {"limit": "x"}} {
		if _, err := readSettings(bench.Env{Args: args}); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	s, err := readSettings(bench.Env{Quick: true, Args: map[string]string{"parts": "switch,ends", "cycles": "7"}})
	if err != nil || s.cycles != 7 || s.kills != quickCounts.kills || s.of(partSwitch, s.cycles) != 7 || s.of(partPause, s.pauses) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for name := range map[string]bool{"parts": true, "cycles": true, "kernel": true} {
		if err := Experiment().CheckSettings(map[string]string{name: ""}); err != nil {
			t.Error(err)
		}
	}
}
