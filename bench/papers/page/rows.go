package page

import (
	"fmt"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/arbitrate"
)

// The papers' ways, as the experiments' rows call them.
const (
	passes = "nvidia-smi + docker top"
	asked  = "every node asked (P2)"
	p3     = "p3"
	laxity = "laxity"
	sliced = "default" // time slices: what the papers call without management
)

var papers = []struct{ name, about string }{
	{"P1", "*Deadline information management for real-time GPU tasks in containers*. RTX 3090, i9-10920X; 10 containers of 5120² products."},
	{"P2", "*Real-time GPU task monitoring and node list management*."},
	{"P3", "*Contention management for GPU-sharing containers by pause/unpause*. RTX 3090. Our card copies and multiplies faster: products are repeated until kernels are nine tenths of a lone task, as on the paper's. A container launches all of them 1 to 3 s after its start, and those that a pause finds launched run on: where the pause comes later than that, it orders nobody."},
	{"P4", "*Adaptive GPU sharing and scheduling in a container cluster*; we have its abstract. Ours runs tasks of one kind of work on 40 GiB, not its cluster."},
	{"P5", "*GPU memory limits for containers by a CUDA interface*, a poster. K20m, 5 GiB."},
}

func rows() []row {
	var all []row
	for _, of := range []func() []row{p1Rows, p2Rows, p3Rows, p4Rows, p5Rows} {
		all = append(all, of()...)
	}
	return all
}

func p1Rows() []row {
	const monitor = "200 tasks of 1024² products; the paper's monitor makes pass after pass without a rest"
	errorRow := func(what, stated, key string, pairs ...any) row {
		of := func(way string) measured { return signed(key, append([]any{"kind", "task", "way", way}, pairs...)...) }
		return row{paper: "P1", place: "Table 2", what: what + ": mean error with its sign (least to most)", stated: stated,
			from: "events", seconds: 240, theirs: of(passes), ours: of(laxity), differs: monitor}
	}
	cost := func(what, key, unit string) row {
		of := func(way string) measured { return median(1, unit, key, "way", way, "containers", 10) }
		return row{paper: "P1", place: "Figs 4–5", what: what + ", 10 containers", stated: "“very small”; see the paper", from: "cost", seconds: 480,
			theirs: of(passes), ours: of(laxity), differs: "the exporter publishes more than the paper's monitor: metrics, use, energy"}
	}
	return []row{
		errorRow("start", "+220 ms (180 to 250)", "start_error_s"),
		errorRow("end", "+210 ms (180 to 240)", "end_error_s", "release", "destroy"),
		errorRow("run time", "+220 ms (170 to 240)", "run_error_s", "release", "destroy"),
		onePass(10, row{paper: "P1", place: "Figs 4–5", what: "mean time of a pass over all containers, 10 containers", stated: "“very small”; see the paper", seconds: 480}),
		cost("CPU of the monitor", "cpu_percent", "% of a core"),
		cost("private memory of the monitor", "rss_anon_mib", "MiB"),
	}
}

// onePass completes a row with the mean time of a pass over n containers.
func onePass(n int, r row) row {
	r.from = "cost"
	r.differs = "NVML in the process, which the paper's nvidia-smi loads anew; older results have ours since the exporter's start, which is not shown"
	r.ours = summary(bench.Mean, 1, "ms", "pass_mean_ms", "way", laxity, "containers", n)
	if r.bar == 0 {
		r.theirs = summary(bench.Mean, 1, "ms", "pass_ms", "way", passes, "containers", n)
	}
	return r
}

// gpusOf is 1 GPU, 2 GPUs.
func gpusOf(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

func p2Rows() []row {
	all := []row{
		{paper: "P2", place: "Fig. 3", what: "run time of an 8192² task beside 19 others", stated: "from a few s to about 60 s", from: arbitrate.PaperName("8192"), seconds: 2500,
			theirs: phase("all", "8192", sliced, 20), ours: phase("all", "8192", laxity, 20), differs: "the product is repeated"},
		{paper: "P2", place: "Fig. 4", what: "run time of a small inference beside 4 others, over alone; below 70 % use of the GPU", stated: "no slowdown", bar: 1, from: arbitrate.PaperName("inference"), seconds: 600,
			theirs: slowdown("inference", sliced, 5), ours: slowdown("inference", laxity, 5), differs: "40 requests with a kernel of 25 ms each"},
	}
	for _, size := range []struct{ gpus, containers int }{{1, 10}, {4, 8}, {8, 100}} {
		all = append(all, row{paper: "P2", place: "Table 3", what: fmt.Sprintf("bytes that a node of %s and %d containers sends", gpusOf(size.gpus), size.containers), stated: "16 bytes (state 1, float 10, use 5)", from: "bytes",
			theirs:  median(1, "bytes", "sent_bytes", "way", asked, "gpus", size.gpus, "containers", size.containers),
			ours:    median(1, "bytes", "sent_bytes", "way", "a scrape", "gpus", size.gpus, "containers", size.containers),
			differs: "ours is every series of the node, gzip and HTTP's header included, sent at each scrape; the paper's is sent when a container is to be placed, without headers"})
	}
	for _, c := range []struct{ what, key, unit string }{{"CPU of the monitor", "cpu_percent", "% of a core"}, {"private memory of the monitor", "rss_anon_mib", "MiB"}} {
		of := func(way string) measured { return median(1, c.unit, c.key, "way", way, "containers", 100) }
		all = append(all, row{paper: "P2", place: "Figs 9–10", what: c.what + ", 100 containers", from: "cost", seconds: 480, theirs: of(passes), ours: of(laxity),
			differs: "20 compute, the others hold a context"})
	}
	all = append(all, onePass(100, row{paper: "P2", place: "Figs 9–10", what: "mean time of a pass, 100 containers", seconds: 480}))
	busy := func(way string) measured {
		return median(1, "% of a core", "cpu_percent", "way", way, "processes", 1000)
	}
	all = append(all, row{paper: "P2", place: "Figs 9–10", what: "CPU of the monitor, 1,000 processes in 100 containers", from: "growth", theirs: busy(passes), ours: busy(laxity),
		differs: "simulated GPU, whose list costs the paper's monitor less than nvidia-smi; the paper's monitor then takes over a second a pass"})
	for _, n := range []int{10, 100, 1000, 10000} {
		at := func(way, kind string, of func([]float64) float64) measured {
			return summary(of, 1000, "ms", "seconds", "way", way, "kind", kind, "nodes", n)
		}
		const simulated = "simulated nodes in both; the paper's way here has no network's delay, ours a Prometheus server on the same 2 cores"
		all = append(all,
			row{paper: "P2", place: "Fig. 11", what: fmt.Sprintf("from the question to the node, %d nodes", n), from: "scale", theirs: at(asked, "decision", bench.Median), ours: at("Prometheus", "decision", bench.Median), differs: simulated},
			row{paper: "P2", place: "Fig. 11", what: fmt.Sprintf("the same, p99, while scrapes and rules go on, %d nodes", n), from: "scale", theirs: at(asked, "decision", bench.P99), ours: at("Prometheus", "busy decision", bench.P99),
				differs: simulated + "; the paper's nodes monitor nothing meanwhile"})
	}
	return all
}

func p3Rows() []row {
	var all []row
	seconds := map[string]int{"19456": 2600, "13312": 3200, "8192": 2500} // of three runs
	contention := func(place, what, stated, set string, theirs, ours measured) row {
		return row{paper: "P3", place: place, what: what, stated: stated, from: arbitrate.PaperName(set), seconds: seconds[set],
			theirs: theirs, ours: ours, differs: "the product is repeated, so times are not the paper's: compare how they grow"}
	}
	stated := map[int]string{1: "10.8 s", 2: "23.3 s", 5: "58.0 s", 10: "115.5 s"}
	for _, n := range []int{1, 2, 5, 10} {
		all = append(all, contention("Fig. 2, Table 1", fmt.Sprintf("kernel time of 13312², %d at once", n), stated[n], "13312", phase("kernels", "13312", sliced, n), phase("kernels", "13312", laxity, n)))
	}
	for _, name := range []string{"input", "output"} {
		for _, n := range []int{1, 10} {
			all = append(all, contention("Table 1", fmt.Sprintf("%s of 13312², %d at once", name, n), "", "13312", phase(name, "13312", sliced, n), phase(name, "13312", laxity, n)))
		}
	}
	for _, c := range []struct {
		n      int
		stated string
	}{{2, "+1.23 s"}, {10, "+4.06 s"}} {
		all = append(all, contention("Fig. 3", fmt.Sprintf("lost against one after another, 13312² × %d", c.n), c.stated, "13312", loss("13312", sliced, c.n), loss("13312", laxity, c.n)))
	}
	all = append(all, contention("Fig. 4", "spread of the containers' kernel times, 13312² × 10", "below 1 %", "13312", spread("13312", sliced, 10), nil))
	all[len(all)-1].ours, all[len(all)-1].theirs = spread("13312", sliced, 10), nil
	all[len(all)-1].differs += "; a property of the card's time sliced, not of Laxity"
	for _, c := range []struct {
		place, set, stated string
		n                  int
	}{{"Fig. 7", "19456", "some 0.2 s better", 5}, {"Fig. 8", "13312", "some 0.2 s better", 10}, {"Fig. 9", "8192", "no gain, at times a loss", 20}} {
		all = append(all, contention(c.place, fmt.Sprintf("against n × lone, %s² × %d (negative: a gain)", c.set, c.n), c.stated, c.set, loss(c.set, p3, c.n), loss(c.set, laxity, c.n)))
	}
	return append(all,
		row{paper: "P3", place: "costs", what: "a pause", stated: "60 ms", bar: 60, from: "swap", seconds: 300, ours: median(1000, "ms", "pause_s", "way", laxity), differs: "by Docker's API, and compared with the kernel's freezer"},
		row{paper: "P3", place: "costs", what: "an unpause", stated: "60 ms", bar: 60, from: "swap", seconds: 300, ours: median(1000, "ms", "unpause_s", "way", laxity), differs: "as above"},
		onePass(10, row{paper: "P3", place: "costs", what: "mean time of a query of the GPU, 10 containers on it", stated: "60 ms", bar: 60, settings: " --set counts=10", seconds: 120}),
	)
}

func p4Rows() []row {
	var all []row
	for _, set := range []string{"equal", "unequal"} {
		for _, c := range []struct {
			what, key, against, stated string
			bar                        float64
			more                       bool
		}{
			{"mean run time against the default", "took", "default", "−16.37 %", -16.37, false},
			{"mean run time against static shares", "took", static, "−15.61 %", -15.61, false},
			{"use of GPU memory against the default", "memory_use", "default", "+52.46 %", 52.46, true},
			{"use of GPU memory against static shares", "memory_use", static, "+10.3 %", 10.3, true},
		} {
			differs := "12 tasks on 40 GiB"
			if c.against == "default" {
				differs += "; by default most tasks fail for want of memory, and the run time is of those few that end, which have the card to themselves"
			}
			for _, way := range []string{laxity, "adaptive"} {
				r := row{paper: "P4", what: fmt.Sprintf("%s, %s tasks, %s", c.what, set, map[string]string{laxity: "limits", "adaptive": "adaptive shares"}[way]), stated: c.stated, bar: c.bar, more: c.more,
					from: "oversubscribe", settings: " --set ways=default,static,laxity,fair,adaptive,one --set repeats=1 --set sets=" + set, seconds: 240, ours: change(set, way, c.against, c.key), differs: differs}
				all = append(all, r)
			}
		}
	}
	return append(all, row{paper: "P4", what: "CNNs (PyTorch) that do not fit beside each other: trainings that end with the losses and weights of a lone run", from: "cnns", seconds: 280, more: true,
		theirs: trained(sliced), ours: trained(laxity), differs: "its way is the default, without the paper's checkpoints, which are TensorFlow's; ours swaps by the driver's"})
}

// static is P4's static fair share, as oversubscribe has it.
const static = "static"

func p5Rows() []row {
	return []row{
		{paper: "P5", what: "two containers that wait for each other's memory: rounds in which all end", stated: "both wait for ever", from: "deadlock", seconds: 400, more: true,
			theirs: ended("two", sliced), ours: ended("two", laxity), differs: "40 % of the card each, and 40 % more"},
		{paper: "P5", what: "three in a ring over two GPUs: rounds in which all end", stated: "not in the paper", from: "deadlock-2gpus", seconds: 460, more: true,
			theirs: ended("ring", sliced), ours: ended("ring", laxity), differs: "two GPUs"},
		{paper: "P5", what: "steps of 128 MiB that a limit of 1 GiB grants", from: "guard", seconds: 60, more: true,
			ours: steps("limit 1 GiB"), differs: "a context takes some 0.5 GiB of the limit; steps at once, not every 10 s"},
		{paper: "P5", what: "containers with a limit of 1 GiB that fit beside each other on 5 GiB", stated: "two more than without", from: "fit", seconds: 120, more: true,
			theirs: fitting(sliced), ours: fitting(laxity),
			differs: "5 GiB of the card, a context takes some 0.5 GiB of the limit; its way is without limits; steps each 0.2 s, not every 10 s"},
		{paper: "P5", what: "containers with some of the GPUs, from which the others are hidden", stated: "a next step", from: "hidden", seconds: 60, more: true,
			ours: hiding, differs: "where NVIDIA's runtime is not installed, GPUs are given by their device files, as it does; Laxity chooses the GPU, the kernel hides the others"},
	}
}
