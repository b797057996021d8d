package page

import (
	"fmt"
	"math"
	"strings"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/cnns"
)

// What oversubscribe runs besides: P4's static fair share, and Laxity with the memory divided.
const (
	static   = "static"
	fair     = "fair"
	adaptive = "adaptive"
)

// shares are our ways, by what the page calls them.
var shares = []struct{ way, name string }{{laxity, "limits"}, {fair, "fair"}, {adaptive, "adaptive"}}

func p4() []figure {
	return []figure{
		{
			name: "products",
			about: "Ours is Laxity with limits, with fair and with adaptive shares; the worst of the three is compared. By default most tasks fail for want of memory, and the few " +
				"that end have the card to themselves. Static is our reading of P4's static fair share: equal parts, as many as the largest task fits into, and a task in each.",
			rows: against(),
		},
		{
			name: "products, absolute",
			about: "The times of one after another and of static contain the making of each container: some 4 s of the 32. Static still ends sooner than ours with limits. " +
				"*Ours* is with limits, *fair* and *adaptive* are ours, too. Use of memory is the mean over the time to the last end.",
			beside: []string{"FAIR", "ADAPTIVE", "STATIC", "DEFAULT", "ONE AFTER ANOTHER"}, rows: absolute(),
		},
		{
			name: "CNNs",
			about: "Four trainings on 54 GiB, of which two fit beside each other; the other two come later and have deadlines. The default is without the paper's checkpoints. " +
				"Ours swaps containers out by the driver's checkpoints.",
			beside: []string{"DEFAULT", "ONE AFTER ANOTHER"}, rows: trainings(),
		},
	}
}

func oversubscribe(set string) row {
	return row{from: "oversubscribe", settings: " --set ways=default,static,laxity,fair,adaptive,one --set repeats=1 --set sets=" + set, seconds: 240, of: "run"}
}

func against() (all []row) {
	made := map[string]string{
		"took":       "Static's time contains the making of its containers: ours is not faster than static by this.",
		"memory_use": "The making of its containers lowers static's use.",
	}
	for _, set := range []string{"equal", "unequal"} {
		for _, c := range []struct {
			what, key, against, stated string
			bar                        float64
			more                       bool
		}{
			{"mean run time against the default", "took", sliced, "−16.37 %", -16.37, false},
			{"mean run time against static", "took", static, "−15.61 %", -15.61, false},
			{"use of GPU memory against the default", "memory_use", sliced, "+52.46 %", 52.46, true},
			{"use of GPU memory against static", "memory_use", static, "+10.3 %", 10.3, true},
		} {
			r := oversubscribe(set)
			r.what, r.stated, r.bar, r.more = fmt.Sprintf("%s tasks: %s", set, c.what), c.stated, c.bar, c.more
			r.ours = changes(set, c.against, c.key, c.more)
			if c.against == static {
				r.differs = made[c.key]
			}
			all = append(all, r)
		}
	}
	return all
}

func absolute() (all []row) {
	for _, set := range []string{"equal", "unequal"} {
		for _, c := range []struct {
			what string
			of   func(set, way string) measured
		}{
			{"tasks that ended", finished}, {"the last end", untilLast},
			{"mean run time of those that ended", func(set, way string) measured { return averaged(set, way, "took", 1, "s") }},
			{"use of GPU memory", func(set, way string) measured { return averaged(set, way, "memory_use", 100, "%") }},
		} {
			r := oversubscribe(set)
			r.what, r.stated, r.ours = fmt.Sprintf("%s tasks: %s", set, c.what), "-", c.of(set, laxity)
			for _, way := range []string{fair, adaptive, static, sliced, oneBy} {
				r.beside = append(r.beside, c.of(set, way))
			}
			all = append(all, r)
		}
	}
	return all
}

// tasksOf are the tasks of a set by a way.
func tasksOf(rows []bench.Row, set, way string) []bench.Row {
	return kept(rows, where("set", set, "way", way))
}

// column is a column of tasks; a time is of those that ended.
func column(tasks []bench.Row, key string) []float64 {
	return bench.Column(tasks, key, func(r bench.Row) bool { return key != "took" || r.Str("outcome") == "ended" })
}

// averaged is a column's mean.
func averaged(set, way, key string, scale float64, unit string) measured {
	return func(rows []bench.Row) value {
		tasks := tasksOf(rows, set, way)
		return number(scale*bench.Mean(column(tasks, key)), unit, len(runsOf(tasks)))
	}
}

// untilLast is the time to the last end.
func untilLast(set, way string) measured {
	return func(rows []bench.Row) value {
		v := eachRun(tasksOf(rows, set, way), func(run []bench.Row) float64 { return bench.Max(bench.Column(run, "end", nil)) })
		return spanned(v, "s", len(v))
	}
}

// finished is how many tasks ended.
func finished(set, way string) measured {
	return func(rows []bench.Row) value {
		tasks := tasksOf(rows, set, way)
		if len(tasks) == 0 {
			return none
		}
		n := len(kept(tasks, where("outcome", "ended")))
		return value{float64(n), fmt.Sprintf("%d of %d", n, len(tasks)), len(runsOf(tasks))}
	}
}

// changes is by how many percent a column's mean differs from another way's, by each of ours. The worst is compared.
func changes(set, against, key string, more bool) measured {
	return func(rows []bench.Row) value {
		out := value{at: math.NaN()}
		var texts []string
		base := bench.Mean(column(tasksOf(rows, set, against), key))
		for _, s := range shares {
			tasks := tasksOf(rows, set, s.way)
			v := 100 * (bench.Mean(column(tasks, key))/base - 1)
			if math.IsNaN(v) {
				continue
			}
			texts = append(texts, fmt.Sprintf("%s %+.1f %%", s.name, v))
			if math.IsNaN(out.at) || (v < out.at) == more {
				out.at = v
			}
			out.n = max(out.n, len(runsOf(tasks)))
		}
		out.text = strings.Join(texts, ", ")
		return out
	}
}

func trainings() []row {
	add := func(what string, more bool, of func(way string) measured) row {
		return row{what: what, stated: "-", from: "cnns", seconds: 280, more: more, of: "run", ours: of(laxity), beside: []measured{of(sliced), of(oneBy)}}
	}
	return []row{
		add("trainings that end with the losses and weights of a lone run", true, trained),
		add("deadlines met", true, met),
		add("the last end", false, func(way string) measured {
			return ofTrainings(way, func(run []bench.Row) float64 { return bench.Max(column(run, "end")) })
		}),
		add("mean time of those that ended", false, func(way string) measured {
			return ofTrainings(way, func(run []bench.Row) float64 { return bench.Mean(column(run, "took")) })
		}),
	}
}

// ofTrainings summarises a number of each run.
func ofTrainings(way string, of func([]bench.Row) float64) measured {
	return func(rows []bench.Row) value {
		v := eachRun(kept(rows, where("way", way)), of)
		return spanned(v, "s", len(v))
	}
}

// trained is how many trainings ended right by a way, and how often one was swapped out.
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
		return value{float64(right) / float64(n), text, len(runsOf(kept(rows, where("way", way))))}
	}
}

// met is how many deadlines were met by a way, of those that had one.
func met(way string) measured {
	return func(rows []bench.Row) value {
		of := kept(rows, where("way", way))
		hits := known(bench.Column(of, "hit", nil))
		if len(hits) == 0 {
			return none
		}
		n := bench.Mean(hits) * float64(len(hits))
		return value{n / float64(len(hits)), fmt.Sprintf("%.0f of %d", n, len(hits)), len(runsOf(of))}
	}
}
