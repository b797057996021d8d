package channels

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/daemon"
)

// quick runs the least of an experiment, and returns its figures too.
func quick(t *testing.T, e bench.Experiment) (rows []bench.Row, value map[string]float64) {
	t.Helper()
	simtest.Docker(t)
	simtest.Library(t)
	built, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", built+string(os.PathListSeparator)+os.Getenv("PATH"))
	rows, err = e.Run(t.Context(), bench.Env{Device: "sim", Log: t.Logf, Quick: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	value = map[string]float64{}
	for _, f := range e.FiguresOf(rows) {
		value[f.Name] = f.Value
	}
	return rows, value
}

// Real containers on a simulated GPU, through the whole experiment.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 15 s")
	}
	_, value := quick(t, Experiment())
	for _, zero := range []string{"kernel_stuck", "kernel_wrong", "ends_stuck", "ends_memory_kept", "ends_left_on_record"} {
		if n, ok := value[zero]; !ok || n != 0 {
			t.Errorf("%s = %v (known: %v)", zero, n, ok)
		}
	}
	for _, some := range []string{"kernel_on_median_ms", "startups_mean_s", "find_new_max_ms", "find_old_ms", "find_old_at_once_ms", "ends_memory_free_max_ms"} {
		if value[some] <= 0 {
			t.Errorf("%s = %v", some, value[some])
		}
	}
	// No beat after the call at all is off at once: where others take the cores the tenant beats seldom.
	if n, known := value["kernel_off_median_ms"]; !known || n < 0 {
		t.Errorf("kernel_off_median_ms = %v (known: %v)", n, known)
	}
	// The tenant says late what its simulated GPU has done where others take the cores.
	if n := value["kernel_moved_while_off"]; n > float64(quickCounts.cycles)/4 {
		t.Errorf("the kernel moved %v times while it was off", n)
	}
	if value["paused_kernels_that_ran_on"] != float64(quickCounts.pauses) {
		t.Errorf("%v kernels ran on in a paused container, want all %d", value["paused_kernels_that_ran_on"], quickCounts.pauses)
	}
}

// The same for laxity up itself.
func TestQuickKills(t *testing.T) {
	if testing.Short() {
		t.Skip("runs containers for some 5 s")
	}
	rows, value := quick(t, Kills())
	kills := of(rows, partKills, "")
	if _, err := daemon.Program("laxity"); err != nil {
		if len(kills) != 1 || kills[0].Str("cannot") == "" {
			t.Errorf("without laxity: %v", kills)
		}
		return
	}
	if n, ok := value["kills_stuck"]; !ok || n != 0 || value["kills_wrong"] != 0 || value["kills_undone_max_ms"] <= 0 {
		t.Errorf("kills: %v", kills)
	}
}
