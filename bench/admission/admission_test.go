package admission

import (
	"math"
	"testing"

	"github.com/laxity/laxity/bench"
)

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
