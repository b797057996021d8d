package page

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/arbitrate"
	"github.com/laxity/laxity/bench/cnns"
	"github.com/laxity/laxity/bench/fit"
	"github.com/laxity/laxity/bench/hidden"
)

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

// summary is a statistic of a column, such as bench.Median, times scale, in a unit.
func summary(of func([]float64) float64, scale float64, unit, key string, pairs ...any) measured {
	return func(rows []bench.Row) value {
		return number(scale*of(bench.Column(rows, key, where(pairs...))), unit)
	}
}

func median(scale float64, unit, key string, pairs ...any) measured {
	return summary(bench.Median, scale, unit, key, pairs...)
}

// signed is the mean of an error with its sign, and the least and the most, in milliseconds.
func signed(key string, pairs ...any) measured {
	return func(rows []bench.Row) value {
		v := slices.DeleteFunc(bench.Column(rows, key, where(pairs...)), math.IsNaN)
		if len(v) == 0 {
			return none
		}
		ms := func(s float64) string {
			if s > 0 {
				return "+" + bench.Number(1000*s)
			}
			return bench.Number(1000 * s)
		}
		// The mean of the sizes is what is compared: errors of both signs do not make up for each other.
		size := 0.0
		for _, e := range v {
			size += math.Abs(e) / float64(len(v))
		}
		return value{1000 * size, fmt.Sprintf("%s ms (%s to %s)", ms(bench.Mean(v)), ms(slices.Min(v)), ms(slices.Max(v)))}
	}
}

// contended are the rows of a set of contention, by a way, with n containers.
func contended(rows []bench.Row, set, way string, n int) []bench.Row {
	keep := where("set", set, "way", way, "n_tasks", n)
	return slices.DeleteFunc(arbitrate.Whole(rows), func(r bench.Row) bool { return !keep(r) })
}

// phase is the median of a phase of the containers' tasks, seconds: input, kernels or output.
func phase(name, set, way string, n int) measured {
	return func(rows []bench.Row) value {
		var v []float64
		for _, r := range contended(rows, set, way, n) {
			phases := map[string]float64{"input": r.Num("launch_s"), "kernels": r.Num("kernels_s"), "output": r.Num("took_s") - r.Num("launch_s") - r.Num("kernels_s"), "all": r.Num("took_s")}
			v = append(v, phases[name])
		}
		return number(bench.Median(v), "s")
	}
}

// makespans are the times from the first start to the last end, a run each.
func makespans(rows []bench.Row) []float64 {
	first, last := map[float64]float64{}, map[float64]float64{}
	for _, r := range rows {
		run := r.Num("run")
		if _, ok := first[run]; !ok {
			first[run], last[run] = r.Num("start"), r.Num("end")
		}
		first[run], last[run] = min(first[run], r.Num("start")), max(last[run], r.Num("end"))
	}
	var out []float64
	for run := range first {
		out = append(out, last[run]-first[run])
	}
	return out
}

// loss is by how much n containers by a way end later than n times one alone, seconds; negative is a gain.
func loss(set, way string, n int) measured {
	return func(rows []bench.Row) value {
		lone := bench.Median(makespans(contended(rows, set, "default", 1)))
		return number(bench.Median(makespans(contended(rows, set, way, n)))-float64(n)*lone, "s")
	}
}

// spread is the widest difference between the containers' kernel times, in percent of their median.
func spread(set, way string, n int) measured {
	return func(rows []bench.Row) value {
		v := bench.Column(contended(rows, set, way, n), "kernels_s", nil)
		if len(v) == 0 {
			return none
		}
		return number(100*(slices.Max(v)-slices.Min(v))/bench.Median(v), "%")
	}
}

// slowdown is a task's time beside n−1 others over its time alone.
func slowdown(set, way string, n int) measured {
	return func(rows []bench.Row) value {
		return number(phase("all", set, way, n)(rows).at/phase("all", set, "default", 1)(rows).at, "×")
	}
}

// oversubscribed is a column's mean in a set of oversubscribe by a way, of tasks that ended where it is a time.
func oversubscribed(rows []bench.Row, set, way, key string) float64 {
	return bench.Mean(bench.Column(rows, key, func(r bench.Row) bool {
		of := r.Str("set")
		if of == "" { // older rows: there was one set
			of = "equal"
		}
		return of == set && r.Str("way") == way && (key != "took" || r.Str("outcome") == "ended")
	}))
}

// change is by how many percent a column's mean differs between ways, of which the first one is ours.
func change(set, way, against, key string) measured {
	return func(rows []bench.Row) value {
		v := 100 * (oversubscribed(rows, set, way, key)/oversubscribed(rows, set, against, key) - 1)
		if math.IsNaN(v) {
			return none
		}
		return value{v, fmt.Sprintf("%+.1f %%", v)}
	}
}

// ended is how many rounds of a shape by a way ended for all containers.
func ended(shape, way string) measured {
	return func(rows []bench.Row) value {
		all, n := 0, 0
		for _, r := range rows {
			if where("shape", shape, "way", way)(r) {
				n++
				if r.Num("ended") == r.Num("containers") {
					all++
				}
			}
		}
		if n == 0 {
			return none
		}
		return value{float64(all) / float64(n), fmt.Sprintf("%d of %d rounds", all, n)}
	}
}

// steps is how many steps of 128 MiB fit.
func steps(way string) measured {
	return median(1, "steps", "fits", "way", way)
}

// trained is how many trainings of cnns ended right by a way, and how often one was swapped out.
func trained(way string) measured {
	return func(rows []bench.Row) value {
		right, n, swaps := cnns.Right(rows, way)
		if n == 0 {
			return none
		}
		text := fmt.Sprintf("%d of %d", right, n)
		if swaps > 0 {
			text += fmt.Sprintf(", %d swaps", swaps)
		}
		return value{float64(right) / float64(n), text}
	}
}

// hiding is how many of the containers of hidden see no GPU but their own.
func hiding(rows []bench.Row) value {
	n, all := hidden.Hidden(rows)
	if all == 0 {
		return none
	}
	return value{float64(n) / float64(all), fmt.Sprintf("%d of %d containers", n, all)}
}

// fitting is how many containers of fit had all that they may have, and waited for nothing, by a way.
func fitting(way string) measured {
	return func(rows []bench.Row) value { return number(fit.Fits(rows, way), "containers") }
}
