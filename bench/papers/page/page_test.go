package page

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/experiments"
)

// allRows are the rows of all figures.
func allRows() (all []row) {
	for _, p := range papers() {
		for _, f := range p.figures {
			all = append(all, f.rows...)
		}
	}
	return all
}

// Each row is complete: its experiment is there and has its settings; it says what it counts, and fills its figure's columns.
func TestRows(t *testing.T) {
	for _, p := range papers() {
		for _, f := range p.figures {
			for _, r := range f.rows {
				e, ok := experiments.Find(r.from)
				if !ok || r.what == "" || r.ours == nil || r.of == "" || len(r.beside) != len(f.beside) {
					t.Errorf("%s: %q is not complete, or there is no experiment %q", heading(p, f), r.what, r.from)
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
				if n := strings.Count(r.differs, ". "); n > 1 {
					t.Errorf("%s: %d sentences are too many for a cell", r.what, n+1)
				}
			}
		}
	}
}

// A stored result gives every row that names it a value: keys and ways are called what the rows call them.
func TestStoredResultsGiveValues(t *testing.T) {
	stored, seen := stored(t), 0
	for _, r := range allRows() {
		l := lineOf(r, stored)
		if _, ok := stored[r.from]; !ok || r.awaited && !l.known() {
			continue
		}
		seen++
		if !l.known() || l.ours.n == 0 || r.theirs != nil && (l.theirs.text == "" || l.theirs.n == 0) {
			t.Errorf("%s: ours %+v, theirs %+v", r.what, l.ours, l.theirs)
		}
		for i, v := range l.beside {
			if v.text == "" && (r.from != "cnns" || !strings.Contains(r.what, "deadline")) { // one after another has none
				t.Errorf("%s: column %d is empty", r.what, i)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d rows are measured", seen)
	}
}

func stored(t *testing.T) map[string]bench.Result {
	t.Helper()
	all, err := experiments.Stored(os.DirFS("../../results"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWorse(t *testing.T) {
	at := func(v float64) value { return number(v, "s", 1) }
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
		return lineOf(costOf("cost", 10, 480).pass("a pass", true), map[string]bench.Result{"cost": {Name: "cost", Rows: rows}})
	}
	if l := of(scrape, process("pass_mean_ms")); l.ours.text != "3 ms" || l.basis() != "1 window" {
		t.Errorf("%+v, %s", l.ours, l.basis())
	}
	if l := of(scrape, process("pass_ms")); l.known() || l.basis() != "`laxity-bench cost`, some 480 s of a GPU" {
		t.Errorf("older: %+v, %s", l.ours, l.basis())
	}
}

// A row says of how much it is, for each way where they differ.
func TestBasis(t *testing.T) {
	for want, l := range map[string]line{
		"3 runs":                       {row: row{of: "run"}, ours: number(1, "s", 3), theirs: number(2, "s", 3)},
		"1 run":                        {row: row{of: "run"}, ours: number(1, "s", 1), theirs: none},
		"100 rounds; its way: 5":       {row: row{of: "round"}, ours: number(1, "", 100), theirs: number(1, "", 5)},
		"2 windows; its way: 2 passes": {row: row{of: "window", ofTheirs: "pass"}, ours: number(1, "", 2), theirs: number(1, "", 2)},
	} {
		if got := l.basis(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
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

// What is in brackets is the least and the most, where they are printed differently.
func TestSpanned(t *testing.T) {
	for want, v := range map[string][]float64{"2 s (1 to 4)": {4, 1, 2, math.NaN()}, "10.1 s": {10.11, 10.12}, "": {math.NaN()}} {
		if got := spanned(v, "s", len(v)); got.text != want {
			t.Errorf("%v: %q, want %q", v, got.text, want)
		}
	}
}

// The page says of each figure where it is from, and leads with what is worse.
func TestWrite(t *testing.T) {
	var b strings.Builder
	results := map[string]bench.Result{"cost": {Name: "cost", Commit: "abc1234", Machine: "M", Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Older: "all of it",
		Rows: []bench.Row{{"way": laxity, "containers": 10.0, "rss_anon_mib": 20.0}, {"way": passes, "containers": 10.0, "rss_anon_mib": 10.0}}}}
	if err := Write(&b, results); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	worse, rest, _ := strings.Cut(text, "\n## P1\n")
	if !strings.Contains(worse, "| [P1, Figs 4 and 5](#p1-figs-4-and-5) | private memory of the monitor |") || strings.Contains(worse, "CPU of the monitor") {
		t.Errorf("what is worse: %s", worse)
	}
	for _, want := range []string{"| 10 MiB | **20 MiB** |", "From `cost` (2026-01-02, commit abc1234, M; **older code**).", "| not measured |", "`laxity-bench bytes`, no GPU needed",
		"`laxity-bench contention-13312`, some", "see the paper"} {
		if !strings.Contains(rest, want) {
			t.Errorf("no %q", want)
		}
	}
	if !strings.Contains(worse, " 1 are measured; ") || !strings.Contains(worse, "Ours is worse in 1.") {
		t.Errorf("the sum: %s", worse)
	}
}
