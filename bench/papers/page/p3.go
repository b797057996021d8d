package page

import (
	"fmt"

	"github.com/laxity/laxity/bench/arbitrate"
)

// secondsOf is what three runs of a size take.
var secondsOf = map[string]int{"19456": 2600, "13312": 3200, "8192": 2500}

func contention(set, what, stated string, theirs, ours measured) row {
	return row{what: what, stated: stated, from: arbitrate.PaperName(set), seconds: secondsOf[set], of: "run", theirs: theirs, ours: ours}
}

func p3Figures() []figure {
	const large = "13312"
	var kernelTimes, copies, losses []row
	stated := map[int]string{1: "10.8 s", 2: "23.3 s", 5: "58.0 s", 10: "115.5 s"}
	for _, n := range []int{1, 2, 5, 10} {
		kernelTimes = append(kernelTimes, contention(large, fmt.Sprintf("13312², %d at once", n), stated[n],
			together{large, sliced, n}.tasks(kernels), together{large, laxity, n}.tasks(kernels)))
	}
	for _, size := range []struct {
		set string
		n   int
	}{{large, 1}, {large, 10}, {"19456", 5}, {"8192", 20}} {
		copies = append(copies, contention(size.set, fmt.Sprintf("input of %s², %d at once", size.set, size.n), "",
			together{size.set, sliced, size.n}.tasks(input), together{size.set, laxity, size.n}.tasks(input)))
	}
	copies[len(copies)-1].differs = "Most of ours wait before they launch."
	for _, n := range []int{1, 10} {
		copies = append(copies, contention(large, fmt.Sprintf("output of 13312², %d at once", n), "",
			together{large, sliced, n}.tasks(output), together{large, laxity, n}.tasks(output)))
	}
	for _, c := range []struct {
		n      int
		stated string
	}{{2, "+1.23 s"}, {5, ""}, {10, "+4.06 s"}} {
		losses = append(losses, contention(large, fmt.Sprintf("13312² × %d", c.n), c.stated, together{large, sliced, c.n}.loss, together{large, laxity, c.n}.loss))
	}
	apart := contention(large, "13312² × 10", "below 1 %", together{large, sliced, 10}.runs("%", spread), together{large, laxity, 10}.runs("%", spread))
	apart.differs = "Ours runs them one after another, on purpose."
	return []figure{
		{
			name: "Fig. 2 and Table 1, kernels",
			about: "From a container's first launch to its last kernel's end. Ours runs the containers one after another, so its times contain waits, and differ. " +
				"What the last end gains by that is in Fig. 3.",
			rows: kernelTimes,
		},
		{
			name:  "Table 1, copies",
			about: "Input: from the start to the first launch. Output: from the last kernel's end to the end.", rows: copies,
		},
		{name: "Fig. 3", about: "The last end against one after another, computed as N times one alone by default. Positive is a loss.", rows: losses},
		{name: "Fig. 4", about: "The spread of the containers' kernel times: the widest difference within a run, of their median.", rows: []row{apart}},
		{
			name: "Figs 7 to 9",
			about: "Fig. 7 is 19456² × 5, Fig. 8 is 13312² × 10, Fig. 9 is 8192² × 20. **MPS ends sooner than ours at all three sizes**; ours has the lower mean turnaround. " +
				"The paper's gain grows with the size of a task; ours does not. One after another was run once, to check the computed N × lone.",
			beside: []string{"DEFAULT", "MPS", "ONE AFTER ANOTHER, ONCE"}, rows: figs7to9(),
		},
		{name: "costs", rows: p3Costs()},
	}
}

func figs7to9() (all []row) {
	for _, c := range []struct {
		set, stated string
		n           int
	}{{"19456", "some 0.2 s better", 5}, {"13312", "some 0.2 s better", 10}, {"8192", "no gain, at times a loss", 20}} {
		size := fmt.Sprintf("%s² × %d", c.set, c.n)
		add := func(what, stated string, of func(together) measured) *row {
			r := contention(c.set, size+": "+what, stated, of(together{c.set, p3, c.n}), of(together{c.set, laxity, c.n}))
			for _, way := range []string{sliced, mps, oneBy} {
				r.beside = append(r.beside, of(together{c.set, way, c.n}))
			}
			all = append(all, r)
			return &all[len(all)-1]
		}
		add("the last end", "", func(t together) measured { return t.runs("s", lastEnd) })
		against := add("the last end against N × lone", c.stated, func(t together) measured { return t.loss })
		if c.set == "19456" {
			against.differs = "In one of three runs its way's pause came in time: −4.5 s."
		}
		add("mean turnaround", "-", func(t together) measured { return t.runs("s", turnaround) })
	}
	return all
}

func p3Costs() []row {
	const same = "Docker's pause in both, here on a faster host: no merit of ours."
	query := costOf("cost", 10, 120).pass("mean time of a query of the GPU, 10 containers on it", true)
	query.stated, query.bar, query.settings, query.theirs = "60 ms", 60, " --set counts=10", nil
	query.differs = "Ours: one reading of the GPUs, in the process. The paper starts nvidia-smi."
	pause := func(what, key string) row {
		return row{what: what, stated: "60 ms", bar: 60, from: "swap", seconds: 300, ours: median(1000, "ms", key, "way", laxity), of: "container", differs: same}
	}
	return []row{pause("a pause", "pause_s"), pause("an unpause", "unpause_s"), query}
}
