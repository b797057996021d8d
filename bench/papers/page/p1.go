package page

import "github.com/laxity/laxity/bench"

func p1() []figure {
	errorOf := func(what, stated, key, differs string, pairs ...any) row {
		of := func(way string) measured { return signed(key, append([]any{"kind", "task", "way", way}, pairs...)...) }
		return row{what: what, stated: stated, from: "events", seconds: 240, theirs: of(passes), ours: of(laxity), of: "task", differs: differs}
	}
	const notTheirs = "not in the paper"
	cost := costOf("cost", 10, 480)
	return []figure{
		{
			name: "Table 2",
			about: "The error of what is seen from outside: its mean with its sign, the least and the most. 200 tasks of 1024² products start. " +
				"100 of them destroy their context before they end, as the paper's do; the other 100 leave that to their exit.",
			rows: []row{
				errorOf("start", "+220 ms (180 to 250)", "start_error_s", "The paper's monitor makes pass after pass without a rest."),
				errorOf("end, context destroyed", "+210 ms (180 to 240)", "end_error_s", "Its way sees ends earlier here than the paper says.", "release", "destroy"),
				errorOf("run time, context destroyed", "+220 ms (170 to 240)", "run_error_s", "", "release", "destroy"),
				errorOf("end, at exit", notTheirs, "end_error_s", "", "release", "exit"),
				errorOf("run time, at exit", notTheirs, "run_error_s", "", "release", "exit"),
			},
		},
		{
			name: "Figs 4 and 5", about: "Ten containers. Each monitor runs alone for 20 s. The exporter publishes more than the paper's monitor: metrics, use, energy.",
			rows: said("“very small”; see the paper",
				cost.cpu("CPU of the monitor, scraped once a second", ""), cost.cpu("CPU of the monitor, scraped ten times a second", often),
				cost.memory(), cost.pass("mean time of a pass over all containers", true)),
		},
	}
}

// said completes rows of which the paper says the same.
func said(text string, rows ...row) []row {
	for i := range rows {
		if rows[i].stated == "" {
			rows[i].stated = text
		}
	}
	return rows
}

// often is how the exporter's column ends where it is scraped as in the compose stack.
const often = "_scraped_100ms"

// costs are rows of what watching costs, at a number of containers.
type costs struct {
	row        row // what all have
	containers int
}

func costOf(experiment string, containers, seconds int) costs {
	return costs{row{from: experiment, seconds: seconds, of: "window"}, containers}
}

func (c costs) of(summary func([]float64) float64, way, unit, key string) measured {
	return func(rows []bench.Row) value {
		v := known(bench.Column(rows, key, where("way", way, "containers", c.containers)))
		return number(summary(v), unit, len(v))
	}
}

func (c costs) cpu(what, column string) row {
	r := c.row
	r.what = what
	const unit, key = "% of a core", "cpu_percent"
	r.theirs, r.ours = c.of(bench.Median, passes, unit, key), c.of(bench.Median, laxity, unit, key+column)
	if column != "" {
		r.stated = "-"
		r.differs = "As the compose stack scrapes. The paper's monitor is not scraped."
	}
	return r
}

func (c costs) memory() row {
	r := c.row
	r.what = "private memory of the monitor"
	r.theirs, r.ours = c.of(bench.Median, passes, "MiB", "rss_anon_mib"), c.of(bench.Median, laxity, "MiB", "rss_anon_mib")
	return r
}

// pass is the mean time of a pass. Awaited: the stored result is from before ours was measured.
func (c costs) pass(what string, awaited bool) row {
	r := c.row
	r.what, r.awaited, r.ofTheirs = what, awaited, "pass"
	r.differs = "Ours: one reading of the GPUs; containers are found by sensors. Its way: a pass of nvidia-smi and docker top."
	r.theirs, r.ours = c.of(bench.Mean, passes, "ms", "pass_ms"), c.of(bench.Mean, laxity, "ms", "pass_mean_ms")
	return r
}
