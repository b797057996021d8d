package page

import (
	"fmt"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/arbitrate"
)

func p2() []figure {
	cost, growth := costOf("cost", 100, 480), costOf("growth", 100, 0)
	return []figure{
		{
			name: "Fig. 3",
			about: "8192² in equal containers that begin at once. Its way is time slicing without management. Each repeats its product 30 times: compare how they grow, not the seconds. " +
				"Ours runs the containers one after another, so its times contain waits; the last ends are under P3, Figs 7 to 9.",
			beside: []string{"MPS"}, rows: fig3(),
		},
		{
			name: "Fig. 4",
			about: "1 to 5 containers of 40 small requests each, each with a kernel of some 26 ms and other work. One alone wants 15 % of the GPU. " +
				"Four want 58 %; five want 73 %, which is more than the 70 % of the paper. The paper runs its containers without management, as the column DEFAULT does. " +
				"The mean run time of all tasks is divided by that of a task alone, by the same way.",
			beside: []string{"DEFAULT", "MPS"}, rows: fig4(),
		},
		{
			name: "Table 3",
			about: "What a node sends about itself. The paper's node sends 16 bytes when a container is to be placed; we did not measure that. Ours is the answer to a scrape: every " +
				"series of the node, with gzip and HTTP's header.",
			rows: table3(),
		},
		{
			name: "Figs 9 and 10, on a GPU", about: "100 containers, of which 20 compute; the others hold a context. Each monitor runs alone for 20 s. A pass of its way takes some two seconds here.",
			rows: []row{
				cost.cpu("CPU of the monitor, scraped once a second", ""), cost.cpu("CPU of the monitor, scraped ten times a second", often),
				cost.memory(), cost.pass("mean time of a pass", true),
			},
		},
		{
			name: "Figs 9 and 10, simulated",
			about: "1,000 processes in 100 containers, which hold a context. The GPU is simulated: its list costs the paper's monitor less than nvidia-smi does. " +
				"Each monitor runs alone for 15 s. A pass of its way takes some two seconds here.",
			rows: []row{
				growth.cpu("CPU of the monitor, scraped once a second", ""), growth.cpu("CPU of the monitor, scraped ten times a second", often),
				growth.memory(), growth.pass("mean time of a pass", false),
			},
		},
		{
			name: "Fig. 11",
			about: "From the question to the node; simulated nodes. Its way here has no network's delay, and its nodes monitor nothing meanwhile. Ours asks a Prometheus server on the " +
				"same 2 cores. That has scraped all nodes and evaluated the rules before; what an evaluation takes has rows of its own. Where no GPU is idle, the default ranking " +
				"compares all nodes; nothing is reserved in those rows. With 10 and 100 nodes the server's facts had run out before most of those questions, which named no node.",
			rows: fig11(),
		},
	}
}

func fig3() (all []row) {
	stated := map[int]string{1: "a few s", 20: "about 60 s"}
	for _, n := range []int{1, 5, 20} {
		of := func(way string) measured { return together{"8192", way, n}.tasks(took) }
		what := "run time of a task alone"
		if n > 1 {
			what = fmt.Sprintf("run time of a task beside %d others", n-1)
		}
		all = append(all, row{what: what, stated: stated[n], from: arbitrate.PaperName("8192"), seconds: 2500, of: "run", theirs: of(sliced), ours: of(laxity), beside: []measured{of(mps)}})
	}
	return all
}

func fig4() []row {
	const set = "inference"
	base := row{from: arbitrate.PaperName(set), seconds: 900, of: "run"}
	alone := base
	alone.what = "mean run time alone"
	alone.ours = together{set, laxity, 1}.mean
	alone.beside = []measured{together{set, sliced, 1}.mean, together{set, mps, 1}.mean}
	all := []row{alone}
	for n := 2; n <= 5; n++ {
		r := base
		r.what, r.stated, r.bar = fmt.Sprintf("%d at once: mean run time over that alone", n), "no slowdown", 1
		r.ours = together{set, laxity, n}.slowdown
		r.beside = []measured{together{set, sliced, n}.slowdown, together{set, mps, n}.slowdown}
		all = append(all, r)
	}
	all[len(all)-1].differs = "Ours slows them down less than the default, and more than MPS."
	last := base
	last.what, last.stated, last.differs = "5 at once: the last end", "-", "By ours the last one ends as by default."
	end := func(way string) measured { return together{set, way, 5}.runs("s", lastEnd) }
	last.ours, last.beside = end(laxity), []measured{end(sliced), end(mps)}
	return append(all, last)
}

func table3() (all []row) {
	for _, size := range []struct{ gpus, containers int }{{1, 10}, {4, 8}, {8, 100}} {
		of := func(scale float64) measured {
			return median(scale, "bytes", "sent_bytes", "way", "a scrape", "gpus", size.gpus, "containers", size.containers)
		}
		node := fmt.Sprintf("%s, %d containers", gpus(size.gpus), size.containers)
		all = append(all,
			row{what: node + ": an answer", stated: "16 bytes (state 1, float 10, use 5)", bar: 16, from: "bytes", of: "answer", ours: of(1)},
			row{what: node + ": in a second", stated: "-", from: "bytes", of: "answer", ours: of(10), differs: "Ten answers: so often the compose stack scrapes."})
	}
	return all
}

func gpus(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

func fig11() (all []row) {
	const server = "Prometheus"
	for _, size := range []struct {
		n    int
		text string
	}{{10, "10"}, {100, "100"}, {1000, "1,000"}, {10000, "10,000"}} {
		at := func(way, kind string, of func([]float64) float64) measured {
			return summary(of, 1000, "ms", "seconds", "way", way, "kind", kind, "nodes", size.n)
		}
		with := func(what string, theirs, ours measured) {
			all = append(all, row{what: size.text + " nodes: " + what, from: "scale", of: "decision", theirs: theirs, ours: ours})
		}
		typical := at(asked, "decision", bench.Median)
		with("`--ranking=paper`", typical, at(server, "decision", bench.Median))
		with("`--ranking=paper`, p99, while scrapes and rules go on", at(asked, "decision", bench.P99), at(server, "busy decision", bench.P99))
		with("the default ranking", typical, at(server, "predictive decision", bench.Median))
		with("the default ranking, no GPU idle", typical, crowded(server, size.n))
		with("one evaluation of all rules", nil, at(server, "evaluation", bench.Median))
		rules := &all[len(all)-1]
		rules.of, rules.stated = "evaluation", "-"
	}
	return all
}

// crowded is the median time of the question where no GPU is idle, and how often it named a node, unless always.
func crowded(way string, nodes int) measured {
	return func(rows []bench.Row) value {
		v := median(1000, "ms", "seconds", "way", way, "kind", "crowded decision", "nodes", nodes)(rows)
		found := 0
		for _, r := range kept(rows, where("way", way, "kind", "crowded decision", "nodes", nodes)) {
			if r.Num("found") == 1 {
				found++
			}
		}
		if found < v.n {
			v.text += fmt.Sprintf("; %d of %d named a node", found, v.n)
		}
		return v
	}
}
