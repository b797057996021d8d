package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/bench"
)

// counted is a way in a run.
type counted struct {
	fits    int
	steps   []string // of those that fit
	outcome string   // of the one that does not; empty: all fit
	later   bool     // that one got its steps once another had ended
	free    float64
}

// countedIn are those of a way, a run each.
func countedIn(rows []bench.Row, way string) (all []counted) {
	var runs []float64
	of := map[float64]*counted{}
	for _, r := range rows {
		if r.Str("way") != way {
			continue
		}
		n := r.Num("run")
		if of[n] == nil {
			of[n] = &counted{free: r.Num("free")}
			runs = append(runs, n)
		}
		c := of[n]
		if fits(int(r.Num("steps")), r.Str("outcome")) {
			c.fits++
			c.steps = append(c.steps, bench.Number(r.Num("steps")))
		} else {
			c.outcome, c.later = r.Str("outcome"), r.Num("later") > 0
		}
	}
	for _, n := range runs {
		all = append(all, *of[n])
	}
	return all
}

func stepsOf(rows []bench.Row) string {
	var all []string
	for _, r := range rows {
		all = append(all, bench.Number(r.Num("steps")))
	}
	return strings.Join(all, " ")
}

// Fits is how many containers fit by a way, the median of the runs; NaN without any.
func Fits(rows []bench.Row, way string) float64 {
	var v []float64
	for _, c := range countedIn(rows, way) {
		v = append(v, float64(c.fits))
	}
	return bench.Median(v)
}

func figures(rows []bench.Row) []bench.Figure {
	ours := countedIn(rows, laxity)
	later := 0
	for _, c := range ours {
		if c.later {
			later++
		}
	}
	with, before := Fits(rows, laxity), Fits(rows, without)
	return []bench.Figure{
		{Name: "fit_containers", Value: with, Unit: "containers", Against: without, Ratio: with / before, Runs: len(ours)},
		{Name: "fit_later", Value: float64(later), Unit: fmt.Sprintf("of %d runs", len(ours)), Runs: len(ours)},
	}
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"WAY", "RUN", "FREE MiB", "FIT", "STEPS OF EACH", "THE NEXT ONE", "AFTER ANOTHER'S END"}}
	for _, way := range slices.Backward(allWays) {
		for i, c := range countedIn(rows, way) {
			next, later := c.outcome, "-"
			switch {
			case next == "":
				next = "-"
			case c.later:
				later = "gets its steps"
			default:
				later = "gets nothing"
			}
			out = append(out, []string{way, fmt.Sprint(i + 1), bench.Number(c.free / (1 << 20)), fmt.Sprint(c.fits), strings.Join(c.steps, " "), next, later})
		}
	}
	return out
}
