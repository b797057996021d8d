package serve

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
)

func spansOf(all ...[2]float64) (spans []program.Span) {
	for _, s := range all {
		spans = append(spans, program.Span{Began: s[0], Ended: s[1]})
	}
	return spans
}

// A request counts from when it was due, a step where it ended.
func TestAWindowHoldsWhatWasDueInIt(t *testing.T) {
	w := window{begun: 3, from: 10, to: 12}
	requests := spansOf([2]float64{9, 11}, [2]float64{10, 10.1}, [2]float64{11, 11.2}, [2]float64{11.9, 15}, [2]float64{12, 12.1})
	steps := [][]program.Span{spansOf([2]float64{9, 10}, [2]float64{10, 11}, [2]float64{11, 12}), spansOf([2]float64{1, 2})}
	r, err := rowOf(w, requests, steps)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]float64{"requests": 3, "p50_s": 0.2, "most_s": 3.1, "steps_per_s": 1, "fewest_per_s": 0, "beside": 2} {
		if math.Abs(r.Num(key)-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", key, r.Num(key), want)
		}
	}
	if _, err := rowOf(w, requests[4:], steps); err == nil {
		t.Error("no error for a window without a request")
	}
	if r, _ := rowOf(window{begun: 1, from: 10, to: 12}, requests, nil); r["steps_per_s"] != nil {
		t.Error("steps without a trainer")
	}
}

func rowsOf(way string, beside int, steps float64, p99 ...float64) (rows []bench.Row) {
	for i, v := range p99 {
		r := bench.Row{"who": "server", "way": way, "beside": beside, "run": i + 1, "requests": 100, "p50_s": v / 2, "p90_s": v / 2, "p99_s": v, "most_s": v}
		if beside > 0 {
			r["steps_per_s"], r["fewest_per_s"] = steps+float64(i)/10, 0.0
		}
		rows = append(rows, r)
	}
	return rows
}

func TestFiguresCompareWaysOfTheSameRun(t *testing.T) {
	rows := slices.Concat(
		rowsOf(timeSliced, 0, 0, 0.001, 0.002, 0.001), rowsOf(timeSliced, 1, 10, 0.004, 0.004, 0.004),
		rowsOf(laxity, 0, 0, 0.001, 0.001, 0.001), rowsOf(laxity, 1, 9, 0.002, 0.002, 0.003),
		rowsOf(withMPS, 1, 9, 0.009, 0.009, 0.009))
	got := map[string]bench.Figure{}
	for _, f := range Experiment().FiguresOf(rows) {
		got[f.Name] = f
	}
	for name, want := range map[string]float64{
		"serve1_alone_p99_ms": 1, "serve1_p99_ms": 2, "serve1_p99_vs_alone": 2, "serve1_p99_vs_default": 0.5, "serve1_steps_vs_default": 9.1 / 10.1,
	} {
		if f := got[name]; math.Abs(f.Value-want) > 1e-9 || f.Runs != 3 {
			t.Errorf("%s = %+v, want %v", name, f, want)
		}
	}
	if len(got) != 5 {
		t.Errorf("figures without rows: %v", got)
	}
	lines := table(rows)
	if len(lines) != 1+5 || lines[1][7] != "-" || lines[2][7] != "none" || lines[4][7] != "0.50 ×" || lines[4][9] != "0.90 ×" {
		t.Errorf("table: %q", lines)
	}
}

// Of a run with fewer than 100 requests the longest is told, not a p99; also of older rows, which have one.
func TestFewRequestsHaveNoP99(t *testing.T) {
	for name, tt := range map[string]struct {
		requests   []int // of the runs
		tail       tail
		p99, ratio string
	}{
		"enough":     {[]int{100, 167}, byP99, "2", "0.50 ×"},
		"few":        {[]int{10, 10}, byLongest, "-", "0.25 × (longest)"},
		"few in one": {[]int{167, 99}, byLongest, "-", "0.25 × (longest)"},
	} {
		t.Run(name, func(t *testing.T) {
			var rows []bench.Row
			for i, n := range tt.requests {
				for way, v := range map[string][2]float64{timeSliced: {0.004, 0.012}, laxity: {0.002, 0.003}} {
					rows = append(rows, bench.Row{"who": "text", "way": way, "beside": 1, "run": i + 1, "requests": n, "p99_s": v[0], "most_s": v[1]})
				}
			}
			var names []string
			for _, f := range Experiment().FiguresOf(rows) {
				names = append(names, f.Name)
			}
			if want := []string{"text1_" + tt.tail.name + "_ms", "text1_" + tt.tail.name + "_vs_default"}; !slices.Equal(names, want) {
				t.Errorf("figures %q, want %q", names, want)
			}
			if line := table(rows)[2]; !strings.HasPrefix(line[5], tt.p99) || line[7] != tt.ratio {
				t.Errorf("%q, want p99 %s and %s", line, tt.p99, tt.ratio)
			}
		})
	}
	for requests, want := range map[int]bool{99: false, 100: true} {
		r, err := rowOf(window{begun: 1, from: 0, to: 1000}, spansOf(slices.Repeat([][2]float64{{1, 2}}, requests)...), nil)
		if _, ok := r["p99_s"]; ok != want || err != nil {
			t.Errorf("%d requests: %v, %v", requests, r, err)
		}
	}
}

func TestParse(t *testing.T) {
	s, err := parse(bench.Env{Args: map[string]string{"runs": "5", "duration": "8s", "ways": "default,laxity"}}, scenes)
	if err != nil || s.runs != 5 || s.duration.Seconds() != 8 || len(s.ways) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []map[string]string{{"runs": "0"}, {"duration": "8"}, {"duration": "-1s"}, {"ways": "magic"}} {
		if _, err := parse(bench.Env{Args: bad}, scenes); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}
