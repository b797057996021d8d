package page

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/laxity/laxity/bench"
)

// The ways, as the experiments' rows call them.
const (
	passes = "nvidia-smi + docker top"
	asked  = "every node asked (P2)"
	p3     = "p3"
	laxity = "laxity"
	sliced = "default" // time slices: what the papers call without management
	mps    = "mps"
	oneBy  = "one" // one after another
)

// value is one measured number as the page shows it.
type value struct {
	at   float64 // for the comparison, in the row's unit; NaN: not measured
	text string
	n    int // of how many runs, tasks or whatever the row counts
}

var none = value{at: math.NaN()}

// number is a value in a unit; none if it is not known.
func number(v float64, unit string, n int) value {
	if math.IsNaN(v) {
		return none
	}
	return value{v, strings.TrimSpace(bench.Number(v) + " " + unit), n}
}

// spanned is the median of values and, where they differ as printed, the least and the most.
func spanned(v []float64, unit string, n int) value {
	v = known(v)
	if len(v) == 0 {
		return none
	}
	out := number(bench.Median(v), unit, n)
	if low, high := bench.Number(slices.Min(v)), bench.Number(slices.Max(v)); low != high {
		out.text += fmt.Sprintf(" (%s to %s)", low, high)
	}
	return out
}

func known(v []float64) []float64 { return slices.DeleteFunc(slices.Clone(v), math.IsNaN) }

// where keeps rows that have these keys and values, in pairs.
func where(pairs ...any) func(bench.Row) bool {
	return func(r bench.Row) bool {
		for i := 0; i < len(pairs); i += 2 {
			key := pairs[i].(string)
			switch want := pairs[i+1].(type) {
			case string:
				if r.Str(key) != want {
					return false
				}
			case int:
				if r.Num(key) != float64(want) {
					return false
				}
			}
		}
		return true
	}
}

// kept are the rows that a function keeps.
func kept(rows []bench.Row, keep func(bench.Row) bool) []bench.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return !keep(r) })
}

// runsOf are rows by their run, in the order of runs.
func runsOf(rows []bench.Row) (all [][]bench.Row) {
	of := map[float64][]bench.Row{}
	var runs []float64
	for _, r := range rows {
		n := r.Num("run")
		if of[n] == nil {
			runs = append(runs, n)
		}
		of[n] = append(of[n], r)
	}
	slices.Sort(runs)
	for _, n := range runs {
		all = append(all, of[n])
	}
	return all
}

// eachRun is a value of each run.
func eachRun(rows []bench.Row, of func([]bench.Row) float64) (v []float64) {
	for _, run := range runsOf(rows) {
		v = append(v, of(run))
	}
	return v
}

// summary is a statistic of a column, such as bench.Median, times scale, in a unit.
func summary(of func([]float64) float64, scale float64, unit, key string, pairs ...any) measured {
	return func(rows []bench.Row) value {
		v := known(bench.Column(rows, key, where(pairs...)))
		return number(scale*of(v), unit, len(v))
	}
}

func median(scale float64, unit, key string, pairs ...any) measured {
	return summary(bench.Median, scale, unit, key, pairs...)
}

// signed is the mean of an error with its sign, and the least and the most, in milliseconds.
func signed(key string, pairs ...any) measured {
	return func(rows []bench.Row) value {
		v := known(bench.Column(rows, key, where(pairs...)))
		if len(v) == 0 {
			return none
		}
		ms := func(s float64) string { return plus(1000 * s) }
		// The mean of the sizes is what is compared: errors of both signs do not make up for each other.
		size := 0.0
		for _, e := range v {
			size += math.Abs(e) / float64(len(v))
		}
		return value{1000 * size, fmt.Sprintf("%s ms (%s to %s)", ms(bench.Mean(v)), ms(slices.Min(v)), ms(slices.Max(v))), len(v)}
	}
}

// plus is a number with its sign.
func plus(v float64) string {
	if v > 0 {
		return "+" + bench.Number(v)
	}
	return bench.Number(v)
}
