package scale

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
)

// The simulated nodes are what they are said to be, and the same for a seed.
func TestFleet(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	f, err := newFleet(1, now)
	if err != nil {
		t.Fatal(err)
	}
	again, err := newFleet(1, now)
	if err != nil {
		t.Fatal(err)
	}
	for k := range f.pages {
		count := map[string]int{}
		for _, mf := range f.families[k] {
			count[mf.GetName()] = len(mf.GetMetric())
		}
		if count["gpu_memory_total_bytes"] != gpusPerNode || count["gpu_container_info"] != containersPerNode || count["gpu_tasks"] != 4*containersPerNode {
			t.Fatalf("node %d has %v", k, count)
		}
		if len(f.families[k]) != len(again.families[k]) {
			t.Errorf("node %d differs for the same seed", k)
		}
	}
	page, err := f.page(70)
	if err != nil || !bytes.Contains(page, []byte(memoryUsed+`{node="n00070",gpu="`)) {
		t.Errorf("page: %v, %.300s", err, page)
	}
	if u := f.usedOn(70).Metric[0].Gauge.GetValue(); u <= 0 || u == f.usedOn(6).Metric[0].Gauge.GetValue() {
		t.Errorf("a copy has %v bytes in use", u)
	}
	if bytes.Contains(page, []byte(placeholder)) || !bytes.Contains(page, []byte(`gpu_memory_total_bytes{node="n00070",gpu="`)) {
		t.Errorf("page: %.300s", page)
	}
}

// Series stay in bounds: 500 a node with classic buckets, as the text has them, of which the
// rules record a few (the experiment counts them).
func TestSeriesOfANode(t *testing.T) {
	f, err := newFleet(1, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	for k := range f.pages {
		page, err := f.page(k)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range bytes.Lines(page) {
			if line[0] != '#' {
				n++
			}
		}
		if n > 470 {
			t.Errorf("the exporter of node %d exposes %d series; 470 are left to it of 500", k, n)
		}
	}
}

func TestFigures(t *testing.T) {
	var rows []bench.Row
	for _, n := range []float64{1000, 10000} {
		for i := range 101 {
			rows = append(rows, bench.Row{"way": server, "kind": quiet, "nodes": n, "seconds": n / 1e6 * float64(i)})
		}
		rows = append(rows, bench.Row{"way": server, "kind": "evaluation", "nodes": n, "seconds": n / 1000},
			bench.Row{"way": server, "kind": "series", "nodes": n, "series_per_node": 300.0})
	}
	got := map[string]float64{}
	for _, f := range (Experiment().FiguresOf)(rows) {
		got[f.Name] = f.Value
	}
	for name, want := range map[string]float64{"decision_p99_ms_10000": 990, "decision_median_ms_1000": 50, "decision_growth": 1, "evaluation_growth": 1, "series_per_node": 300} {
		if math.Abs(got[name]-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	if _, ok := got["decision_p99_embedded_ms_1000"]; ok {
		t.Error("a figure of what was not measured")
	}
}

// A p99 of fewer than 100 samples is neither printed nor compared.
func TestP99NeedsSamples(t *testing.T) {
	for name, tt := range map[string]struct {
		asked int
		ratio float64
		want  string
	}{
		"as many as it needs": {100, 1, "5"},
		"one fewer":           {99, 0, "-"},
		"two":                 {2, 0, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			var rows []bench.Row
			for i := range 100 {
				rows = append(rows, bench.Row{"way": server, "kind": quiet, "nodes": 10.0, "seconds": 0.005})
				if i < tt.asked {
					rows = append(rows, bench.Row{"way": asked, "kind": quiet, "nodes": 10.0, "seconds": 0.005})
				}
			}
			for _, f := range Experiment().FiguresOf(rows) {
				if f.Name == "decision_p99_ms_10" && (f.Value != 5 || f.Ratio != tt.ratio) {
					t.Errorf("%+v, want the ratio %v", f, tt.ratio)
				}
			}
			if line := table(rows)[2]; line[1] != asked || line[2] != fmt.Sprint(tt.asked) || line[4] != tt.want {
				t.Errorf("%q, want the p99 %s", line, tt.want)
			}
		})
	}
}

// What else a server does may hide what its rules take; an engine whose evaluation takes less than the clock shows takes none.
func TestWhatRulesTakeMayBeUnknown(t *testing.T) {
	row := func(way string, seconds float64) bench.Row {
		return bench.Row{"way": way, "kind": "evaluation CPU", "nodes": 10, "seconds": seconds}
	}
	for name, c := range map[string]struct {
		row  bench.Row
		want string // the figure's name; empty: there is none
		cell string
	}{
		"the server takes more with rules": {row(server, 0.25), "evaluation_cpu_ms_10", "250"},
		"no less without":                  {row(server, -0.1), "", "-"},
		"the same":                         {row(server, 0), "", "-"},
		"the engine, below a tick":         {row(embedded, 0), "evaluation_cpu_embedded_ms_10", "0"},
	} {
		way := c.row.Str("way")
		rows := []bench.Row{c.row, {"way": way, "kind": "decision", "nodes": 10, "seconds": 0.01}}
		got := ""
		for _, f := range Experiment().FiguresOf(rows) {
			if strings.HasPrefix(f.Name, "evaluation_cpu") {
				got = f.Name
			}
		}
		lines := table(rows)
		if at := slices.Index(lines[0], "RULES CPU ms"); got != c.want || lines[1][at] != c.cell {
			t.Errorf("%s: figure %q, cell %q", name, got, lines[1][at])
		}
	}
}

func TestAskedFindsANode(t *testing.T) {
	rows, err := measureAsked(t.Context(), bench.Env{}, &fleetOf{sizing: sizing{nodes: 100, decisions: 2}})
	if err != nil || len(rows) != 2 || rows[0].Num("found") != 1 {
		t.Errorf("%v %v", rows, err)
	}
}

func TestSettings(t *testing.T) {
	for _, bad := range []map[string]string{{"nodes": "ten"}, {"nodes": "5"}, {"decisions": "0"}} {
		if _, err := sizings(bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	if s, err := sizings(bench.Env{Quick: true}); err != nil || len(s) != 2 {
		t.Errorf("%v %v", s, err)
	}
}

// A node's answer is counted whole, HTTP's headers included, and grows with its containers.
func TestBytes(t *testing.T) {
	rows, err := runBytes(t.Context(), bench.Env{Seed: 1})
	if err != nil || len(rows) != 2*len(nodeSizes) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	last := 0.0
	for _, r := range rows {
		if r.Str("way") == asked {
			if r.Num("sent_bytes") != 16 {
				t.Errorf("P2's node sends %v bytes", r.Num("sent_bytes"))
			}
			continue
		}
		header, sent := r.Num("sent_bytes")-r.Num("body_sent_bytes"), r.Num("sent_bytes")
		if header < 50 || header > 1000 || sent <= last || sent >= r.Num("plain_bytes") {
			t.Errorf("%v: a header of %v bytes, after %v", r, header, last)
		}
		last = sent
	}
}
