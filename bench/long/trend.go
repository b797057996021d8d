package long

import (
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
)

// point is one sample: hours since the run's begin, and the value.
type point struct{ hours, value float64 }

// trend is the change of a quantity per hour, with its 95 % confidence interval. All are NaN
// where no two points have different times.
type trend struct{ slope, low, high float64 }

// z is the 97.5 % quantile of the normal distribution: 95 % lie within ± z.
const z = 1.959964

// parts is how many points a run becomes: its samples are those of a sawtooth (heaps, blocks of a
// database), so neighbours say the same, and Sen's interval takes points as independent of each other.
// In a run of two hours a part is 5 minutes.
const parts = 24

// trendOf is the robust regression of Theil and Sen: the median of the slopes of all pairs of points
// of the same run. A few outliers do not move it. Its interval is Sen's (1968), by the variance of
// Kendall's statistic with ties, which adds up over runs (Hirsch and others, 1982). The points should be
// independent of each other: medians of parts of a run.
func trendOf(runs [][]point) trend {
	var slopes []float64
	variance := 0.0
	for _, points := range runs {
		for i, a := range points {
			for _, b := range points[i+1:] {
				if a.hours != b.hours {
					slopes = append(slopes, (b.value-a.value)/(b.hours-a.hours))
				}
			}
		}
		variance += kendall(points)
	}
	if len(slopes) == 0 {
		return trend{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(slopes)
	n := len(slopes)
	half := z * math.Sqrt(variance)
	at := func(rank float64) float64 { return slopes[min(max(int(rank), 0), n-1)] }
	return trend{
		slope: (slopes[(n-1)/2] + slopes[n/2]) / 2,
		low:   at(math.Floor((float64(n)-half)/2) - 1), high: at(math.Ceil((float64(n) + half) / 2)),
	}
}

// byParts cuts the time of each run into parts of the same length, and takes the median of each.
func byParts(runs [][]point) (all [][]point) {
	for _, points := range runs {
		from, to := points[0].hours, points[len(points)-1].hours
		var hours, values [parts][]float64
		for _, p := range points {
			i := 0
			if to > from {
				i = min(int(parts*(p.hours-from)/(to-from)), parts-1)
			}
			hours[i], values[i] = append(hours[i], p.hours), append(values[i], p.value)
		}
		var medians []point
		for i := range hours {
			if len(hours[i]) > 0 {
				medians = append(medians, point{bench.Median(hours[i]), bench.Median(values[i])})
			}
		}
		all = append(all, medians)
	}
	return all
}

// trends are those of whole runs, and of their second halves.
type trends struct{ whole, second trend }

// trendsOf takes samples.
func trendsOf(runs [][]point) trends {
	whole := byParts(runs)
	var second [][]point
	for _, points := range whole {
		second = append(second, points[len(points)/2:])
	}
	return trends{trendOf(whole), trendOf(second)}
}

// kendall is the variance of Kendall's statistic for points without a trend: values that occur more
// than once make it smaller.
func kendall(points []point) float64 {
	of := func(n float64) float64 { return n * (n - 1) * (2*n + 5) }
	count := map[float64]float64{}
	for _, p := range points {
		count[p.value]++
	}
	v := of(float64(len(points)))
	for _, n := range count {
		v -= of(n)
	}
	return max(v, 0) / 18
}

// interval is written for a reader; empty without one.
func (t trend) interval() string {
	if math.IsNaN(t.slope) {
		return ""
	}
	return bench.Number(t.low) + " to " + bench.Number(t.high)
}

// Verdicts.
const (
	flat   = "flat"
	levels = "levels off"
	grows  = "grows"
	noData = "-"
)

// verdict is flat where the interval holds 0, or where even its upper end grows less in a day
// than bound. What grows levels off if the second halves are flat, and grow for certain less than
// the whole: something fills that has a bound.
func (t trends) verdict(bound float64) string {
	still := func(t trend) bool { return t.low <= 0 || 24*t.high < bound }
	switch {
	case math.IsNaN(t.whole.slope):
		return noData
	case still(t.whole):
		return flat
	case still(t.second) && t.second.high < t.whole.slope:
		return levels
	default:
		return grows
	}
}
