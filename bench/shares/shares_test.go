package shares

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
)

// Real containers on a simulated GPU, and a real `laxity up`.
func TestSharesOfASimulatedGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 50 s")
	}
	simtest.Docker(t)
	simtest.Library(t)
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "laxity"), "../../cmd/laxity").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	// Long steps: whoever waits for its step gives the rest of its slice away, and the simulated GPU of this
	// test, which looks for races, lets it wait longer.
	rows, err := run(t.Context(), bench.Env{Device: "sim", Log: t.Logf, Quick: true, Args: map[string]string{
		"kernels": "20", "duration": "4s", "turn": "5s", "settle": "4s", "warmup": "1m",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := 2*2*len(asked) + 3; len(rows) != want {
		t.Fatalf("%d rows, want %d: two ways in two windows, and three turns: %v", len(rows), want, rows)
	}
	for _, r := range rows {
		// Whoever rests still ends the step that it was taking.
		if steps := r.Num("steps"); resting(r) && steps > 1 || !resting(r) && steps == 0 {
			t.Errorf("steps of %v", r)
		}
		if r["settings"] == "" || r.Num("run") != 1 || !(r.Num("time") > 0) {
			t.Errorf("where it comes from is missing: %v", r)
		}
	}
	found := map[string]bench.Figure{}
	for _, f := range Experiment().FiguresOf(rows) {
		found[f.Name] = f
	}
	if len(found) != 6 {
		t.Errorf("figures: %v", found)
	}
	// By default each has a third. A short window on a machine with other work says no more than that shares act.
	if f := found["share_error_points"]; !(f.Ratio < 1) {
		t.Errorf("the shares are missed by %.1f points, by default by %.1f", f.Value, f.Value/f.Ratio)
	}
}
