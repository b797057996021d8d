package serve

import (
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
)

// Real containers on a simulated GPU, without Laxity.
func TestAServerBesideATrainer(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 16 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	env := bench.Env{Device: "sim", Log: t.Logf, Quick: true, Args: map[string]string{
		"ways": timeSliced, "duration": "5s", "warmup": "1m",
	}}
	rows, err := run(t.Context(), env, "serve", scenes[:1])
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows, want one alone and one beside a trainer: %v", len(rows), rows)
	}
	for i, r := range rows {
		trains := r.Num("steps_per_s") > 0
		if r.Num("requests") < 5 || r.Num("p50_s") <= 0 || r.Num("p50_s") > 1 || r.Num("beside") != float64(i) || trains != (i == 1) {
			t.Errorf("beside %d: %v", i, r)
		}
	}
}
