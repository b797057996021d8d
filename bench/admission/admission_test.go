package admission

import (
	"math"
	"testing"

	"github.com/laxity/laxity/bench"
)

// A way that refuses requests is compared by those in time of all that are offered: refusing all but one is no gain.
func TestWaysAreComparedByWhatIsOffered(t *testing.T) {
	for name, tt := range map[string]struct {
		admitted, inTime     float64
		goodput, refused, by float64
	}{
		"refuses nobody":      {100, 50, 0.5, 0, 1},
		"refuses a half":      {50, 50, 0.5, 0.5, 1},
		"refuses all but one": {1, 1, 0.01, 0.99, 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			row := func(way string, requests, inTime float64) bench.Row {
				return bench.Row{"way": way, "arrivals": "frames", "load": 0.5, "offered": 100.0, "servers": 12.0, "refused_servers": 0.0,
					"requests": requests, "in_time": inTime, "told": 0.0, "told_requests": 0.0, "told_in_time": 0.0, "told_later": 0.0}
			}
			got := map[string]bench.Figure{}
			for _, f := range Experiment().FiguresOf([]bench.Row{row(byDefault, 100, 50), row(allRun, 100, 50), row(require, tt.admitted, tt.inTime)}) {
				got[f.Name] = f
			}
			f, refused := got["offered_in_time: frames, load 0.5"], got["refused_requests: frames, load 0.5"]
			if math.Abs(f.Value-tt.goodput) > 1e-9 || math.Abs(f.Ratio-tt.by) > 1e-9 || math.Abs(refused.Value-tt.refused) > 1e-9 {
				t.Errorf("%+v, %+v", f, refused)
			}
		})
	}
}

func TestAdmission(t *testing.T) {
	rows, err := run(t.Context(), bench.Env{Seed: 3, Quick: true, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := run(t.Context(), bench.Env{Seed: 3, Quick: true, Log: t.Logf})
	e := Experiment()
	got, same := e.FiguresOf(rows), e.FiguresOf(again)
	for i, f := range got {
		if f.Value != same[i].Value {
			t.Errorf("%s is %v, then %v: the same seed must give the same", f.Name, f.Value, same[i].Value)
		}
	}
	for _, arrival := range arrivals {
		for _, load := range loads {
			req, all := sum(rows, arrival, load, require), sum(rows, arrival, load, allRun)
			if in := req.inTime / req.requests; math.IsNaN(in) || in < 0.999 {
				t.Errorf("%s at load %v: %.3f %% of the admitted in time", arrival, load, 100*in)
			}
			if req.refused == 0 || req.refused == req.servers {
				t.Errorf("%s at load %v: %v of %v refused says nothing", arrival, load, req.refused, req.servers)
			}
			if late := req.toldLater + all.toldLater; late > 0 {
				t.Errorf("%s at load %v: %v were told later than with the first snapshot, or after they were admitted", arrival, load, late)
			}
		}
	}
	for _, line := range e.Table(rows) {
		t.Log(line)
	}
}
