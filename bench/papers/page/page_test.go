package page

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/arbitrate"
	"github.com/laxity/laxity/bench/experiments"
)

// Each row is complete: its experiment is there and has its settings; or it says what is missing.
func TestRows(t *testing.T) {
	names := map[string]bool{}
	for _, p := range papers {
		names[p.name] = true
	}
	for _, r := range rows() {
		if !names[r.paper] || r.what == "" {
			t.Errorf("%+v: which paper, and what?", r)
		}
		if r.from == "" {
			if r.missing == "" || r.ours != nil {
				t.Errorf("%s: nothing measures it, and nothing says what would", r.what)
			}
			continue
		}
		e, ok := experiments.Find(r.from)
		if !ok || r.ours == nil || r.differs == "" {
			t.Errorf("%s: no experiment %q, no value or no word on what differs", r.what, r.from)
		}
		args := map[string]string{}
		for part := range strings.SplitSeq(r.settings, " --set ") {
			if name, value, ok := strings.Cut(part, "="); ok {
				args[name] = value
			}
		}
		if err := e.CheckSettings(args); err != nil {
			t.Errorf("%s: %v", r.what, err)
		}
		if e.NeedsGPU && r.seconds == 0 {
			t.Errorf("%s: no time on a GPU", r.what)
		}
	}
}

// A stored result gives every row that names it a value: keys and ways are called what the rows call them. Ways that
// are left out unless asked for, and sets and numbers of containers that no portion has measured so far, may be missing.
func TestStoredResultsGiveValues(t *testing.T) {
	stored, err := experiments.Stored(os.DirFS("../../results"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, r := range rows() {
		l := lineOf(r, stored)
		result, ok := stored[r.from]
		if !ok || strings.Contains(r.settings, "ways=") {
			continue
		}
		if _, set, _ := strings.Cut(r.settings, "sets="); set != "" && !slices.ContainsFunc(result.Rows, func(r bench.Row) bool { return r.Str("set") == set }) {
			continue // to be measured in a later portion
		}
		if !l.known() && strings.HasPrefix(r.from, arbitrate.PaperName("")) {
			continue // the same: its number of containers lacks a way
		}
		seen++
		if !l.known() && strings.Contains(r.differs, "older results have") {
			continue // which is something else
		}
		few := strings.Contains(r.what, "p99") // of the paper's way, which takes a second a question: no p99 of them
		if !l.known() || r.theirs != nil && math.IsNaN(l.theirs.at) && !few {
			t.Errorf("%s %s, %s: ours %q, theirs %q", r.paper, r.place, r.what, l.ours.text, l.theirs.text)
		}
	}
	if seen < 20 {
		t.Errorf("%d rows are measured", seen)
	}
}

func TestWorse(t *testing.T) {
	at := func(v float64) value { return number(v, "s") }
	for name, c := range map[string]struct {
		ours, theirs value
		bar          float64
		more, want   bool
	}{
		"less is better":               {at(1), at(2), 0, false, false},
		"more time":                    {at(2), at(1), 0, false, true},
		"more is better":               {at(2), at(1), 0, true, false},
		"fewer":                        {at(1), at(2), 0, true, true},
		"its way goes before its word": {at(2), at(3), 1, false, false},
		"its word alone":               {at(2), none, 1, false, true},
		"a loss against a gain":        {at(-10), none, -16, false, true},
		"not measured":                 {none, at(1), 1, false, false},
		"nothing to compare":           {at(1), none, 0, false, false},
		"the same":                     {at(1), at(1), 0, false, false},
		"the same as printed":          {at(9.27249), at(9.27241), 0, false, false},
	} {
		l := line{row: row{bar: c.bar, more: c.more}, ours: c.ours, theirs: c.theirs}
		if l.worse() != c.want {
			t.Errorf("%s: %v", name, l.worse())
		}
	}
}

// The exporter's passes are in the row of its process, after those of scrapes. Older rows have the mean since its start, which
// is something else.
func TestPass(t *testing.T) {
	scrape := bench.Row{"way": laxity, "kind": "scrape", "containers": 10, "scrape_ms": 1.0}
	process := func(key string) bench.Row {
		return bench.Row{"way": laxity, "kind": "process", "containers": 10, key: 3.0}
	}
	of := func(rows ...bench.Row) line {
		return lineOf(onePass(10, row{seconds: 1}), map[string]bench.Result{"cost": {Name: "cost", Rows: rows}})
	}
	if l := of(scrape, process("pass_mean_ms")); l.ours.text != "3 ms" {
		t.Errorf("%+v", l.ours)
	}
	if l := of(scrape, process("pass_ms")); l.known() || !strings.HasPrefix(l.source(), "not in the stored result: ") {
		t.Errorf("older: %+v, %s", l.ours, l.source())
	}
}

// A p99 is of 100 values at least, and rows without one are none.
func TestP99NeedsValues(t *testing.T) {
	rows := []bench.Row{{"way": laxity}}
	for range 99 {
		rows = append(rows, bench.Row{"way": laxity, "s": 1.0})
	}
	if v := summary(bench.P99, 1, "s", "s", "way", laxity)(rows); v.text != "" {
		t.Errorf("of 99: %+v", v)
	}
}

// Errors keep their signs in the text; their sizes are compared.
func TestSigned(t *testing.T) {
	rows := []bench.Row{{"way": laxity, "e": -0.003}, {"way": laxity, "e": 0.001}, {"way": laxity}, {"way": passes, "e": 9.0}}
	v := signed("e", "way", laxity)(rows)
	if v.text != "-1 ms (-3 to +1)" || math.Abs(v.at-2) > 1e-9 {
		t.Errorf("%+v", v)
	}
	if v := signed("e", "way", "none")(rows); v.text != "" || !math.IsNaN(v.at) {
		t.Errorf("without rows: %+v", v)
	}
}

// Contention: two containers of which each takes 22 s, beside one alone of 10 s.
func TestContended(t *testing.T) {
	task := func(way string, n, run, ways int, took, kernels float64) bench.Row {
		return bench.Row{"set": "13312", "way": way, "n_tasks": n, "run": run, "ways": ways, "start": 0.0, "end": took, "took_s": took, "launch_s": 0.5, "kernels_s": kernels}
	}
	rows := []bench.Row{
		task(sliced, 1, 1, 1, 10, 9),
		task(sliced, 2, 1, 1, 22, 20), task(sliced, 2, 1, 1, 22, 21),
		task(sliced, 2, 2, 2, 99, 99), // its run lacks a way
	}
	for name, c := range map[string]struct {
		of   measured
		want float64
	}{
		"loss": {loss("13312", sliced, 2), 2}, "kernels": {phase("kernels", "13312", sliced, 2), 20.5}, "output": {phase("output", "13312", sliced, 1), 0.5},
		"slowdown": {slowdown("13312", sliced, 2), 2.2}, "spread": {spread("13312", sliced, 2), 100 / 20.5},
	} {
		if got := c.of(rows).at; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if v := c.of(nil); v.text != "" {
			t.Errorf("%s of nothing: %q", name, v.text)
		}
	}
}

func TestChangeAndEnded(t *testing.T) {
	rows := []bench.Row{
		{"way": laxity, "set": "unequal", "took": 8.0, "outcome": "ended"}, {"way": static, "set": "unequal", "took": 10.0, "outcome": "ended"},
		{"way": static, "set": "unequal", "took": 90.0, "outcome": "out of memory"}, {"way": static, "took": 1.0, "outcome": "ended"},
		{"way": laxity, "shape": "two", "ended": 2, "containers": 2}, {"way": laxity, "shape": "two", "ended": 1, "containers": 2},
	}
	if v := change("unequal", laxity, static, "took")(rows); v.text != "-20.0 %" {
		t.Errorf("%+v", v)
	}
	if v := change("equal", laxity, static, "took")(rows); v.text != "" {
		t.Errorf("without rows of ours: %+v", v)
	}
	if v := ended("two", laxity)(rows); v.text != "1 of 2 rounds" || v.at != 0.5 {
		t.Errorf("%+v", v)
	}
}

func TestTrainedFittingHiding(t *testing.T) {
	rows := []bench.Row{
		{"way": laxity, "right": true, "swapped_out": 2.0}, {"way": laxity, "right": true, "swapped_out": 0.0},
		{"way": sliced, "right": true}, {"way": sliced, "right": false},
	}
	fits := []bench.Row{
		{"way": laxity, "run": 1, "steps": 3, "outcome": "refused"}, {"way": laxity, "run": 1, "steps": 3, "outcome": "refused"}, {"way": laxity, "run": 1, "steps": 1, "outcome": "waits"},
	}
	sees := bench.Row{"own": 1, "cuda_own": 1, "cuda_others": 0, "nvml_others": 0, "files_others": 0, "made_others": 0}
	for name, c := range map[string]struct {
		of   measured
		rows []bench.Row
		text string
		at   float64
	}{
		"with swaps": {trained(laxity), rows, "2 of 2, 2 swaps", 1}, "without": {trained(sliced), rows, "1 of 2", 0.5},
		"fitting": {fitting(laxity), fits, "2 containers", 2}, "hiding": {hiding, []bench.Row{sees, {"control": true}}, "1 of 1 containers", 1},
	} {
		if v := c.of(c.rows); v.text != c.text || v.at != c.at {
			t.Errorf("%s: %+v", name, v)
		}
		if v := c.of(nil); !math.IsNaN(v.at) {
			t.Errorf("%s of nothing: %+v", name, v)
		}
	}
}

// The page says of each row where it is from, and leads with what is worse.
func TestWrite(t *testing.T) {
	var b strings.Builder
	results := map[string]bench.Result{"cost": {Name: "cost", Commit: "abc1234", Machine: "M", Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Older: "all of it",
		Rows: []bench.Row{{"way": laxity, "containers": 10.0, "rss_anon_mib": 20.0}, {"way": passes, "containers": 10.0, "rss_anon_mib": 10.0}}}}
	if err := Write(&b, results); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	worse, rest, _ := strings.Cut(text, "\n## P1\n")
	if !strings.Contains(worse, "| P1 Figs 4–5 | private memory of the monitor, 10 containers |") || strings.Contains(worse, "CPU of the monitor") {
		t.Errorf("what is worse: %s", worse)
	}
	for _, want := range []string{"| 10 MiB | **20 MiB** |", "`cost`, 2026-01-02, commit abc1234, M; **older code**", "not measured", "`laxity-bench bytes`, no GPU needed", "`laxity-bench contention-13312`, some", "see the paper"} {
		if !strings.Contains(rest, want) {
			t.Errorf("no %q", want)
		}
	}
}
