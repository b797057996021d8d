package shares

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
)

// spansAt are steps, of which each begins where the one before ended.
func spansAt(began float64, ends ...float64) (all []program.Span) {
	for _, e := range ends {
		all = append(all, program.Span{Began: began, Ended: e})
		began = e
	}
	return all
}

var three = []member{{who: "10%", share: 0.1}, {who: "30%", share: 0.3}, {who: "60%", share: 0.6}}

func TestAStepCountsWhereItEnds(t *testing.T) {
	w := window{name: allWant, from: 10, to: 12}
	rows := rowsIn(w, laxity, three, [][]program.Span{spansAt(5, 11), spansAt(9, 10, 11, 11.9, 12, 13), nil})
	for i, want := range []struct{ steps, part float64 }{{1, 0.25}, {3, 0.75}, {0, 0}} {
		r := rows[i]
		if r.Num("steps") != want.steps || r.Num("part") != want.part || r.Num("all_per_s") != 2 || r.Str("who") != three[i].who || r.Num("time") != 10 {
			t.Errorf("%v, want %+v", r, want)
		}
	}
	for _, r := range rowsIn(w, laxity, three, make([][]program.Span, 3)) {
		if r.Num("part") != 0 || r.Num("all_per_s") != 0 {
			t.Errorf("without a step: %v", r)
		}
	}
}

func TestATurnHoldsStepsThatLieWithinIt(t *testing.T) {
	w := window{name: alone, from: 10, to: 14}
	for turn, way := range []string{timeSliced, laxity, timeSliced} {
		r, err := loneRow(w, turn, spansAt(9.9, 10, 11, 13, 13.5, 14.5))
		if err != nil || r.Num("steps") != 3 || r.Num("step_s") != 1 || r.Num("step_low_s") != 0.75 || r.Num("step_high_s") != 1.5 || r.Str("way") != way || r.Num("turn") != float64(turn) {
			t.Errorf("turn %d: %v, %v", turn, r, err)
		}
	}
	if _, err := loneRow(w, 0, spansAt(9, 15)); err == nil {
		t.Error("no error for a turn without a step")
	}
}

// part makes the rows of one window: so many steps of each.
func part(run int, way, window string, steps ...float64) (rows []bench.Row) {
	all := 0.0
	for _, n := range steps {
		all += n
	}
	for i, n := range steps {
		rows = append(rows, bench.Row{"run": run, "way": way, "window": window, "who": three[i].who, "share": three[i].share, "steps": n, "part": n / all, "all_per_s": all / 10})
	}
	return rows
}

func turns(run int, steps ...float64) (rows []bench.Row) {
	for i, s := range steps {
		way := []string{timeSliced, laxity}[i%2]
		rows = append(rows, bench.Row{"run": run, "way": way, "window": alone, "who": alone, "turn": i, "step_s": s})
	}
	return rows
}

func TestFigures(t *testing.T) {
	rows := slices.Concat(
		part(1, timeSliced, allWant, 100, 100, 100), part(1, laxity, allWant, 36, 87, 177),
		part(2, timeSliced, allWant, 100, 100, 100), part(2, laxity, allWant, 30, 90, 150),
		part(3, timeSliced, allWant, 100, 100, 100), part(3, laxity, allWant, 30, 93, 177),
		part(1, timeSliced, oneIdle, 100, 100, 0), part(1, laxity, oneIdle, 60, 140, 0),
		part(2, timeSliced, oneIdle, 100, 100, 0), part(2, laxity, oneIdle, 16, 184, 0),
		part(3, timeSliced, oneIdle, 100, 100, 0), part(3, laxity, oneIdle, 50, 150, 20),
		turns(1, 1, 1.1, 1.2, 1.2, 1.2), turns(2, 2, 2.1, 2))
	got := map[string]bench.Figure{}
	for _, f := range Experiment().FiguresOf(rows) {
		got[f.Name] = f
	}
	for name, want := range map[string]struct {
		value float64
		runs  int
	}{
		"share_error_points":           {2, 3},            // 2, 4.4 and 1
		"shares_steps_vs_default":      {1, 3},            // 1, 0.9 and 1
		"shares_idle_error_points":     {75 - 150/2.2, 3}, // 5, 17 and that
		"shares_idle_short_points":     {0, 3},            // 0, 2 and 0
		"shares_idle_steps_vs_default": {1, 3},
		"lone_step_ratio":              {1, 3}, // 1, 1 and 1.05
	} {
		if f := got[name]; math.Abs(f.Value-want.value) > 1e-9 || f.Runs != want.runs {
			t.Errorf("%s = %+v, want %+v", name, f, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d figures: %v", len(got), got)
	}
	if got := got["share_error_points"]; got.Against != timeSliced || math.Abs(got.Ratio-2/(100.0*(0.6-1.0/3))) > 1e-9 {
		t.Errorf("against default: %+v", got)
	}
	text := ""
	for _, line := range table(rows) {
		text += strings.Join(line, "|") + "\n"
	}
	for _, line := range []string{
		"all want it|10%|laxity|11.1 (10.6–11.6)|2.000 (1.500–3.222)|30 (28.5–30)|none||3\n",
		"60 % idle|60%|laxity|0 (0–4.545)|||||3\n",
		"lone|30%|laxity||||1.0000 (1.0000–1.0250) ×|",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// Rows of one part alone, or of one way, give no figure of the others.
func TestFiguresOfSomeRows(t *testing.T) {
	for name, tt := range map[string]struct {
		rows []bench.Row
		want int
	}{
		"alone":         {turns(1, 1, 1.1, 1.2), 1},
		"a turn broken": {turns(1, 1, 1.1), 0},
		"default":       {part(1, timeSliced, allWant, 1, 1, 1), 0},
		"laxity":        {part(1, laxity, allWant, 1, 1, 1), 1},
	} {
		if got := Experiment().FiguresOf(tt.rows); len(got) != tt.want {
			t.Errorf("%s: %v, want %d", name, got, tt.want)
		}
		_ = table(tt.rows)
	}
}

func TestParse(t *testing.T) {
	s, err := parse(bench.Env{Args: map[string]string{"runs": "5", "turns": "2", "kernels": "3", "duration": "8s", "settle": "1s", "turn": "2s", "ways": "laxity", "parts": "lone"}})
	if err != nil || s.runs != 5 || s.String() != "kernels=3 duration=8s settle=1s turns=2 turn=2s" || !slices.Equal(s.ways, []string{laxity}) || !slices.Equal(s.parts, []string{partLone}) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []map[string]string{{"runs": "0"}, {"turns": "none"}, {"settle": "8"}, {"turn": "-1s"}, {"ways": "magic"}, {"parts": "two"}} {
		if _, err := parse(bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}
