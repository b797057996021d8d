package page

import (
	"fmt"
	"strings"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/fit"
	"github.com/laxity/laxity/bench/hidden"
)

func p5() []figure {
	return []figure{
		{
			name: "deadlock",
			about: "Each container holds memory and then asks for more; its way here is without Laxity. By ours each carries the sum as its limit, so those whose sums do not fit beside " +
				"each other begin one after another: the deadlock does not arise. Ours ran with `--arbitrate=always`.",
			rows: []row{
				{what: "two containers, 40 % of the card and 40 % more: rounds in which all end", stated: "both wait for ever", from: "deadlock", seconds: 400, more: true, of: "round",
					theirs: ended("two", sliced), ours: ended("two", laxity)},
				{what: "three in a ring over two GPUs: rounds in which all end", stated: "not in the paper", from: "deadlock-2gpus", seconds: 460, more: true, of: "round",
					theirs: ended("ring", sliced), ours: ended("ring", laxity)},
			},
		},
		{
			name:  "limits",
			about: "A limit of 1 GiB, of which a context takes some 0.5 GiB. Steps are of 128 MiB: at once, or (fit) each 0.2 s, not every 10 s as in the paper.",
			rows: []row{
				{what: "steps that the limit grants", from: "guard", seconds: 60, more: true, of: "run", ours: median(1, "steps", "fits", "way", "limit 1 GiB")},
				{what: "containers that fit beside each other on a card with 5.1 GiB free", stated: "two more containers fit", from: "fit", seconds: 120, more: true, of: "run",
					theirs: fitting(sliced), ours: fitting(laxity), differs: "Its way here is without limits: the first container takes all."},
			},
		},
		{
			name:  "several GPUs",
			about: "Where NVIDIA's runtime is not installed, GPUs are given by their device files, as it does. Laxity chooses the GPU; the kernel hides the others.",
			rows:  []row{{what: "containers from which the GPUs that were not given are hidden", stated: "a next step", from: "hidden", seconds: 60, more: true, of: "container", ours: hiding}},
		},
	}
}

// ended is how many rounds of a shape by a way ended for all containers.
func ended(shape, way string) measured {
	return func(rows []bench.Row) value {
		all, n := 0, 0
		for _, r := range kept(rows, where("shape", shape, "way", way)) {
			n++
			if r.Num("ended") == r.Num("containers") {
				all++
			}
		}
		if n == 0 {
			return none
		}
		return value{float64(all) / float64(n), fmt.Sprintf("%d of %d", all, n), n}
	}
}

// fitting is how many containers of fit had all that they may have, and waited for nothing, by a way: in each run, and the median.
func fitting(way string) measured {
	return func(rows []bench.Row) value {
		v := eachRun(kept(rows, where("way", way)), func(run []bench.Row) float64 { return fit.Fits(run, way) })
		if len(v) == 0 {
			return none
		}
		var each []string
		for _, n := range v {
			each = append(each, bench.Number(n))
		}
		return value{bench.Median(v), fmt.Sprintf("%s (median %s)", strings.Join(each, ", "), bench.Number(bench.Median(v))), len(v)}
	}
}

// hiding is how many of the containers of hidden see no GPU but their own: of those that were given some, and none.
func hiding(rows []bench.Row) value {
	n, all := hidden.Hidden(rows)
	if all == 0 {
		return none
	}
	without, allWithout := hidden.Hidden(kept(rows, where("own", 0)))
	return value{float64(n) / float64(all), fmt.Sprintf("%d of %d with some, %d of %d with none", n-without, all-allWithout, without, allWithout), all}
}
