package placement

import (
	"testing"

	"github.com/laxity/laxity/bench"
)

func quick(t *testing.T, e bench.Experiment) []bench.Row {
	t.Helper()
	rows, err := e.Run(t.Context(), bench.Env{Quick: true, Seed: 1, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Table(rows)) < 2 {
		t.Error("no table")
	}
	return rows
}

// Whatever comes at once, no GPU promises more than it has; and without
// reservations the same load does over-commit, or the experiment shows nothing.
func TestPlacementsNeverOverCommit(t *testing.T) {
	rows := quick(t, Placements())
	if n, placed := overCommitted(rows, laxity); n != 0 || placed < 40 {
		t.Errorf("%d of %d placements are over-committed", n, placed)
	}
	if n, _ := overCommitted(rows, without); n == 0 {
		t.Error("nothing is over-committed without reservations: the load is too small")
	}
}

func TestSimulationIsRepeatableAndCountsEveryTask(t *testing.T) {
	work := arrivals(7, 0.9, 60)
	for _, way := range choices {
		a, b := simulate(work, way, 7), simulate(work, way, 7)
		if a != b {
			t.Errorf("%s: %+v, then %+v", way, a, b)
		}
		if a.tasks != len(work) || a.hits == 0 || a.hits+a.refused > a.tasks {
			t.Errorf("%s: %+v of %d tasks", way, a, len(work))
		}
	}
}

func TestAlmostNothingIsMissedWithoutLoad(t *testing.T) {
	work := arrivals(3, 0.02, 600)
	for _, way := range []string{"predictive", "least-loaded"} {
		if r := simulate(work, way, 3); r.hits < r.tasks {
			t.Errorf("%s: %+v", way, r)
		}
	}
}
