package long

import (
	"math"
	"slices"
)

// point is one sample: hours since the run's begin, and the value.
type point struct{ hours, value float64 }

// trend is the change of a quantity per hour, with its 95 % confidence interval. All are NaN
// where no two points have different times.
type trend struct{ slope, low, high float64 }

// z is the 97.5 % quantile of the normal distribution: 95 % lie within ± z.
const z = 1.959964

// most is how many points of a run enter: pairs grow with the square, and neighbours say the same.
const most = 1000

// trendOf is the robust regression of Theil and Sen: the median of the slopes of all pairs of points
// of the same run. A few outliers do not move it. Its interval is Sen's (1968), by the variance of
// Kendall's statistic with ties, which adds up over runs (Hirsch and others, 1982). It takes points
// as independent of each other; those of a sawtooth are not, and its interval is then too narrow.
func trendOf(runs [][]point) trend {
	var slopes []float64
	variance := 0.0
	for _, points := range runs {
		points = thin(points)
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

// thin takes every k-th point, so that at most `most` are left.
func thin(points []point) []point {
	step := (len(points) + most - 1) / most
	if step <= 1 {
		return points
	}
	var out []point
	for i := 0; i < len(points); i += step {
		out = append(out, points[i])
	}
	return out
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

// Verdicts.
const (
	flat   = "flat"
	grows  = "grows"
	noData = "-"
)

// verdict is flat where the interval holds 0, or where even its upper end grows less in a day
// than bound.
func (t trend) verdict(bound float64) string {
	switch {
	case math.IsNaN(t.slope):
		return noData
	case t.low <= 0 || 24*t.high < bound:
		return flat
	default:
		return grows
	}
}
