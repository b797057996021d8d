package arbitrate

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/laxity/laxity/bench"
)

// run makes the rows of one run in which all tasks start at 100 and end at ends.
func makeRun(set, way string, number int, hit bool, ends ...float64) []bench.Row {
	var rows []bench.Row
	for i, end := range ends {
		r := bench.Row{"way": way, "set": set, "n_tasks": len(ends), "run": number, "task": i + 1,
			"start": 100.0, "end": 100 + end, "took_s": end, "kernels_s": 1.0}
		if set == "deadlines" || set == "mixed" {
			r["deadline_s"], r["hit"] = 5.0, hit || i > 0
		}
		rows = append(rows, r)
	}
	return rows
}

func TestFigures(t *testing.T) {
	var rows []bench.Row
	add := func(more []bench.Row) { rows = append(rows, more...) }
	add(makeRun("large", timeSliced, 1, false, 9)) // fewer tasks: not the highest count
	add(makeRun("large", laxity, 1, false, 1))
	for i, span := range []float64{10, 20, 12} {
		add(makeRun("large", timeSliced, i+1, false, 5, span))
	}
	for i, span := range []float64{9, 8, 30} {
		add(makeRun("large", laxity, i+1, false, 5, span))
	}
	add(makeRun("large", mps, 1, false, 4, 10))
	add(makeRun("deadlines", timeSliced, 1, false, 8, 8))
	add(makeRun("deadlines", edf, 1, true, 2, 4))
	add(makeRun("deadlines", edf, 2, false, 2, 4))

	add(makeRun("mixed", timeSliced, 1, false, 8, 8))
	add(makeRun("mixed", edf, 1, true, 2, 4))
	add(makeRun("mixed", edf, 2, false, 2, 4))

	got := map[string]bench.Figure{}
	for _, f := range Experiment().FiguresOf(rows) {
		got[f.Name] = f
	}
	for name, want := range map[string]bench.Figure{
		"large_makespan_vs_default": {Value: 9.0 / 12, Runs: 3, Against: timeSliced},
		"large_makespan_vs_mps":     {Value: 0.9, Runs: 3, Against: mps},
		"turnaround_vs_default":     {Value: 3.0 / 8, Runs: 2, Against: timeSliced},
		"edf_hits":                  {Value: 1, Runs: 2, Against: timeSliced},
	} {
		f := got[name]
		if math.Abs(f.Value-want.Value) > 1e-9 || f.Runs != want.Runs || f.Against != want.Against {
			t.Errorf("%s = %+v, want %+v", name, f, want)
		}
	}
	if _, there := got["small_makespan_vs_default"]; there || len(got) != 4 {
		t.Errorf("figures without rows: %v", got)
	}
	mixed := Mixed().FiguresOf(rows)
	if len(mixed) != 2 || mixed[1].Name != "mixed_hit_percent_ideal" || mixed[0].Name != "mixed_hit_percent_edf" || mixed[0].Value != 75 || mixed[0].Runs != 4 || mixed[0].Against != timeSliced {
		t.Errorf("mixed: %+v", mixed)
	}
	if lines := table(rows); len(lines) != 1+9 || lines[8][6] != "50.0 %" || lines[1][1] != "1" || lines[4][2] != laxity {
		t.Errorf("table: %v", lines)
	}
}

// A run that a way did not get done counts for no way, and is told of the one that failed.
func TestFailedRuns(t *testing.T) {
	sized := set{name: "deadlines"}
	rows := append(makeRun("deadlines", timeSliced, 1, false, 8, 8), makeRun("deadlines", edf, 1, true, 2, 4)...)
	rows = append(rows, failedRow(sized, edf, 2, 2, errors.New("task 2 hangs")), failedRow(sized, edf, 2, 3, errors.New("task 1 hangs")))
	lines := table(rows)
	if len(lines) != 3 || !slices.Equal(lines[1][7:], []string{"1", "0"}) || !slices.Equal(lines[2][6:], []string{"2 of 2", "1", "2"}) {
		t.Errorf("table: %v", lines)
	}
	for _, f := range figures(rows) {
		if f.Name == "edf_hits" && (f.Value != 2 || f.Runs != 1) {
			t.Errorf("%+v", f)
		}
	}
	if drawn := charts(rows); len(drawn) == 0 {
		t.Error("no charts")
	}

	sized.name = "8192"
	lone := func(way string) bench.Row {
		return bench.Row{"set": "8192", "way": way, "n_tasks": 1, "run": 1, "ways": 2, "start": 1.0, "end": 2.0, "took_s": 1.0, "kernels_s": 1.0, "launch_s": 0.1}
	}
	ways := []string{timeSliced, laxity}
	rows = []bench.Row{lone(timeSliced), failedRow(sized, laxity, 1, 1, errors.New("it hangs"))}
	if again := remaining(rows, "8192", 1, 1, ways); !slices.Equal(again, []string{laxity}) || len(Whole(rows)) != 0 {
		t.Errorf("it is tried again: %v; whole: %v", again, Whole(rows))
	}
	lines = paperTable(append(rows, lone(laxity)))
	if len(lines) != 3 || lines[1][10] != "0" || lines[2][9] != "1" || lines[2][10] != "1" {
		t.Errorf("table: %v", lines)
	}
	// It never gets the run done.
	lines = paperTable(rows)
	if len(lines) != 3 || !slices.Equal(lines[1][1:], []string{timeSliced, "-", "-", "-", "-", "-", "-", "-", "0", "0"}) || !slices.Equal(lines[2][8:], []string{"-", "0", "1"}) {
		t.Errorf("table without a whole run: %v", lines)
	}
	// A later portion finds its number of kernels in what did not fail.
	found := lone(timeSliced)
	found["kernels"] = 180
	m := &measurement{env: bench.Env{Earlier: []bench.Row{rows[1], found}}}
	if kernels, err := m.fill(t.Context(), sized); kernels != 180 || err != nil {
		t.Errorf("%d kernels, %v", kernels, err)
	}
}

func TestParse(t *testing.T) {
	s, err := parse(defaults(false), bench.Env{Args: map[string]string{"sets": "small,deadlines", "ways": "default,laxity", "repeats": "5", "counts": "highest"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.sets) != 2 || s.sets[0].name != "small" || len(s.sets[0].counts) != 1 || s.repeats != 5 || s.wants(mps) || !s.wants(laxity) {
		t.Errorf("settings = %+v", s)
	}
	for _, bad := range []map[string]string{{"sets": "huge"}, {"ways": "magic"}, {"repeats": "x"}, {"counts": "most"}} {
		if _, err := parse(defaults(false), bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

func TestDeadlines(t *testing.T) {
	s := set{kinds: []kind{{n: 1, alone: alone{took: 5, kernels: 3}}}}
	jobs := inShuffledOrder(s, 8, rand.New(rand.NewPCG(1, 1)))
	places := map[float64]bool{}
	for _, j := range jobs {
		places[j.after] = true
	}
	if got := jobs[2].deadline; math.Abs(got-(1.1*(5+6)+0.5)) > 1e-9 || len(places) != 8 || slices.IsSortedFunc(jobs, func(a, b job) int { return cmp.Compare(a.after, b.after) }) {
		t.Errorf("third deadline = %v, arrivals %v", got, places)
	}
}

func TestAtRandom(t *testing.T) {
	s := set{kinds: []kind{{name: "small", n: 1, alone: alone{1, 0.2}}, {name: "large", n: 1, alone: alone{3, 2}}}}
	jobs := atRandom(s, 60, rand.New(rand.NewPCG(1, 1)))
	again := atRandom(s, 60, rand.New(rand.NewPCG(1, 1)))
	large, last := 0, 0.0
	for i, j := range jobs {
		if j.after != again[i].after || j.name != again[i].name {
			t.Fatal("the same seed gives another set")
		}
		if j.name == "large" {
			large++
		}
		if j.after < last || j.deadline != leeway*j.alone.took+grace {
			t.Errorf("%d: %+v", i, j)
		}
		last = j.after
	}
	if window := 30 * 2.2 / load; large != 30 || last > window || last < 0.8*window {
		t.Errorf("%d large ones, the last at %.1f of %.1f s", large, last, window)
	}
}

// One kernel of 0.1 s beside 2 s of all else: 180 kernels are nine tenths of 20 s.
func TestKernelsFor(t *testing.T) {
	for _, c := range []struct {
		alone alone
		want  int
	}{
		{alone{took: 2.1, kernels: 0.1}, 180},
		{alone{took: 10, kernels: 9.9}, 1}, // it is filled already
	} {
		got := kernelsFor(c.alone)
		if got != c.want {
			t.Errorf("%+v: %d, want %d", c.alone, got, c.want)
		}
		work := float64(got) * c.alone.kernels
		if part := work / (work + c.alone.took - c.alone.kernels); part < filled-1e-9 {
			t.Errorf("%+v: kernels are %.3f", c.alone, part)
		}
	}
}

// One after another is checked in the first run of the highest count.
func TestPaperWays(t *testing.T) {
	s := paperSets()[1]
	m := &measurement{without: map[string]string{}}
	for _, c := range []struct {
		n, number int
		want      bool
	}{{5, 1, false}, {10, 1, true}, {10, 2, false}} {
		if ways := m.paperWays(s, c.n, c.number); slices.Contains(ways, oneByOne) != c.want || !slices.Contains(ways, mps) {
			t.Errorf("%d containers, run %d: %v", c.n, c.number, ways)
		}
	}
	m.without[mps] = "there is none"
	if ways := m.paperWays(s, 5, 1); slices.Contains(ways, mps) {
		t.Errorf("without MPS: %v", ways)
	}
}

// A portion takes the ways that earlier ones have not, in the run's order; another set, number or run is none of them.
func TestRemaining(t *testing.T) {
	ways := []string{timeSliced, p3, laxity, mps}
	row := func(set, way string, n, run float64) bench.Row {
		return bench.Row{"set": set, "way": way, "n_tasks": n, "run": run}
	}
	for name, c := range map[string]struct {
		rows   []bench.Row
		number int
		want   []string
	}{
		"the first run":        {nil, 1, ways},
		"the second run":       {nil, 2, []string{p3, laxity, mps, timeSliced}},
		"two are there":        {[]bench.Row{row("8192", timeSliced, 5, 1), row("8192", p3, 5, 1)}, 1, []string{laxity, mps}},
		"of another run":       {[]bench.Row{row("8192", timeSliced, 5, 1)}, 2, []string{p3, laxity, mps, timeSliced}},
		"of another number":    {[]bench.Row{row("8192", timeSliced, 20, 1)}, 1, ways},
		"of another set":       {[]bench.Row{row("13312", timeSliced, 5, 1)}, 1, ways},
		"the run is all there": {[]bench.Row{row("8192", timeSliced, 5, 1), row("8192", p3, 5, 1), row("8192", laxity, 5, 1), row("8192", mps, 5, 1)}, 1, nil},
	} {
		if got := remaining(c.rows, "8192", 5, c.number, ways); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Rows of a run that lacks a way make no figure.
func TestWhole(t *testing.T) {
	row := func(way string, run, ways float64) bench.Row {
		return bench.Row{"set": "8192", "way": way, "n_tasks": 5.0, "run": run, "ways": ways}
	}
	rows := []bench.Row{row(timeSliced, 1, 3), row(p3, 1, 3), row(laxity, 1, 3), row(timeSliced, 2, 3), row(p3, 2, 3)}
	if got := Whole(rows); len(got) != 3 || got[2].Str("way") != laxity {
		t.Errorf("%v", got)
	}
	// A way of the second run turned out to be impossible after the first of its rows was made.
	rows = append(rows, row(laxity, 2, 2))
	if got := Whole(rows); len(got) != 6 {
		t.Errorf("%v", got)
	}
}

func TestPaperFigures(t *testing.T) {
	row := func(way string, n, task int, took float64) bench.Row {
		return bench.Row{"set": "8192", "way": way, "n_tasks": float64(n), "run": 1.0, "task": float64(task), "start": 0.0, "end": took, "took_s": took, "launch_s": 0.1, "kernels_s": took - 0.2}
	}
	rows := []bench.Row{row(timeSliced, 1, 1, 10)}
	for i := range 20 {
		rows = append(rows, row(timeSliced, 20, i+1, 220), row(laxity, 20, i+1, 10*float64(i+1)))
	}
	want := map[string]float64{"contention_8192_default_vs_n_lone": 1.1, "contention_8192_laxity_vs_n_lone": 1, "contention_8192_turnaround_vs_default": 105.0 / 220}
	for _, f := range paperFigures(rows, paperSets()[2]) {
		if w, ok := want[f.Name]; !ok || math.Abs(f.Value-w) > 1e-9 {
			t.Errorf("%s = %v, want %v (known: %v)", f.Name, f.Value, w, ok)
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if lines := paperTable(rows); len(lines) != 4 {
		t.Errorf("table: %v", lines)
	}
}

// The spread is that of a run's tasks: runs that differ as a whole spread nothing.
func TestKernelSpread(t *testing.T) {
	var rows []bench.Row
	for run, kernels := range [][]float64{{10, 10, 11}, {20, 20, 22}, {5, 5, 6}} {
		for _, k := range kernels {
			rows = append(rows, bench.Row{"set": "8192", "way": p3, "n_tasks": 3, "run": run + 1, "start": 0.0, "end": k, "took_s": k, "kernels_s": k},
				bench.Row{"set": "8192", "way": mps, "n_tasks": 3, "run": run + 1, "start": 0.0, "end": k, "took_s": k, "kernels_s": k * k},
				bench.Row{"set": "8192", "way": p3, "n_tasks": 1, "run": run + 1, "start": 0.0, "end": k, "took_s": k, "kernels_s": 100.0})
		}
	}
	c := find(cells(rows), "8192", p3, 3)
	if got := bench.Median(c.each(spreadOf)); math.Abs(got-0.1) > 1e-9 || len(c.runs) != 3 {
		t.Errorf("a spread of %v over %d runs, want 0.1 over 3", got, len(c.runs))
	}
}
