package long

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// line returns n points a minute apart: start, slope per hour, and what noise adds.
func line(n int, start, slope float64, noise func(i int) float64) (points []point) {
	for i := range n {
		hours := float64(i) / 60
		points = append(points, point{hours, start + slope*hours + noise(i)})
	}
	return points
}

func none(int) float64     { return 0 }
func saw(i int) float64    { return float64(i * 7 % 5) }
func spikes(i int) float64 { return map[bool]float64{true: 1000}[i%10 == 3] }

func TestTrend(t *testing.T) {
	for _, tc := range []struct {
		name    string
		runs    [][]point
		slope   float64
		within  float64
		bound   float64
		verdict string
	}{
		{"nothing", nil, math.NaN(), 0, 1, noData},
		{"one point", [][]point{{{0, 5}}}, math.NaN(), 0, 1, noData},
		{"constant", [][]point{line(60, 5, 0, none)}, 0, 0, 0, flat},
		{"sawtooth", [][]point{line(120, 40, 0, saw)}, 0, 0.2, 0, flat},
		{"a leak", [][]point{line(120, 40, 3, saw)}, 3, 0.5, 24, grows},
		{"a leak with outliers", [][]point{line(120, 40, 3, spikes)}, 3, 0.5, 24, grows},
		{"growth below the bound", [][]point{line(120, 40, 0.1, none)}, 0.1, 1e-9, 24, flat},
		{"growth above the bound", [][]point{line(120, 40, 2, none)}, 2, 1e-9, 24, grows},
		{"it shrinks", [][]point{line(120, 40, -3, none)}, -3, 1e-9, 0, flat},
		{"two runs from other levels", [][]point{line(60, 40, 2, saw), line(60, 400, 2, saw)}, 2, 0.5, 1, grows},
		{"it fills and is full", [][]point{line(120, 40, 0, func(i int) float64 { return float64(min(i, 50)) })}, 20, 10, 1, levels},
		{"it grows by more and more", [][]point{line(120, 40, 0, func(i int) float64 { return float64(i * i) })}, 7200, 100, 1, grows},
		{"a second run that begins lower hides nothing", [][]point{line(60, 400, 2, none), line(60, 40, 2, none)}, 2, 1e-9, 1, grows},
	} {
		both := trendsOf(tc.runs)
		got := both.whole
		if both.verdict(tc.bound) != tc.verdict || math.IsNaN(got.slope) != math.IsNaN(tc.slope) || math.Abs(got.slope-tc.slope) > tc.within {
			t.Errorf("%s: %+v, %s; want %v ± %v, %s", tc.name, both, both.verdict(tc.bound), tc.slope, tc.within, tc.verdict)
		}
	}
}

// The interval holds the slope; both move with the values and neither depends on their level or order.
func TestTrendFollowsTheValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(-50, 50), 3, parts).Draw(t, "values")
		slope, level := rapid.IntRange(-20, 20).Draw(t, "slope"), rapid.IntRange(-1000, 1000).Draw(t, "level")
		plain := line(len(values), 0, 0, func(i int) float64 { return float64(values[i]) })
		moved := line(len(values), float64(level), float64(slope), func(i int) float64 { return float64(values[i]) })
		a, b := trendOf([][]point{plain}), trendOf([][]point{moved})
		if !(a.low <= a.slope && a.slope <= a.high) {
			t.Fatalf("%+v", a)
		}
		if math.Abs(b.slope-a.slope-float64(slope)) > 1e-6 {
			t.Fatalf("%+v; with a slope of %d more %+v", a, slope, b)
		}
		slices.Reverse(plain)
		if c := trendOf([][]point{plain}); math.Abs(a.slope-c.slope) > 1e-9 {
			t.Fatalf("%+v; in another order %+v", a, c)
		}
	})
}

// Of samples without a trend few are said to grow: the interval is one of 95 %.
func TestNoiseIsFlat(t *testing.T) {
	const worlds = 200
	grown, seed := 0, uint64(1)
	for range worlds {
		tr := trendsOf([][]point{line(60, 0, 0, func(int) float64 {
			seed = seed*6364136223846793005 + 1442695040888963407
			return float64(seed >> 40)
		})})
		if tr.verdict(0) == grows {
			grown++
		}
	}
	if grown > worlds/20 { // half of the 5 % are slopes below 0
		t.Errorf("%d of %d series of noise are said to grow", grown, worlds)
	}
}

func TestPartsKeepTheRange(t *testing.T) {
	points := line(50*parts, 0, 1, none)
	got := byParts([][]point{points})[0]
	if len(got) != parts || got[0].hours > points[50].hours || got[parts-1].hours < points[50*(parts-1)].hours || trendOf([][]point{got}).slope < 0.99 {
		t.Errorf("%d parts: %+v", len(got), got)
	}
}

// The log of decisions grows until it is as large as it may become.
func TestWhatFillsHasABound(t *testing.T) {
	growing := trendsOf([][]point{line(120, 0, 1000, none)})
	for last, want := range map[float64]string{2000: "fills, 5000 KiB at most", 6000: grows} {
		if got := (quantity{unit: "KiB", bound: 24, most: 5000}).verdict(growing, last); got != want {
			t.Errorf("%v of 5000 KiB: %q, want %q", last, got, want)
		}
	}
}
