package channels

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/chart"
)

// of are the rows of a part and, unless it is empty, of one way.
func of(rows []bench.Row, part, way string) (out []bench.Row) {
	for _, r := range rows {
		if r.Str("part") == part && (way == "" || r.Str("way") == way) {
			out = append(out, r)
		}
	}
	return out
}

// undone are the kills of a way that left something to undo.
func undone(rows []bench.Row, way string) []bench.Row {
	return slices.DeleteFunc(of(rows, partKills, way), func(r bench.Row) bool { return !(r.Num("left") > 0) })
}

// known are the numbers under key that were measured.
func known(rows []bench.Row, key string) []float64 {
	return slices.DeleteFunc(bench.Column(rows, key, nil), math.IsNaN)
}

// sum adds up what the rows have under key: true counts as 1.
func sum(rows []bench.Row, key string) (total float64, runs int) {
	all := known(rows, key)
	for _, v := range all {
		total += v
	}
	return total, len(all)
}

// timed are the figures of a time: what is measured, and in which rows.
type timed struct {
	name, key string
	part, way string
	of        func([]float64) float64 // the statistic
	against   string                  // a way of this part
	beside    string                  // a part, with the same way
}

var times = []timed{
	// Docker's pause does not stop a kernel: there is nothing to compare.
	{name: "kernel_off_median_ms", key: "off_s", part: partSwitch, way: byChannels, of: bench.Median},
	{name: "kernel_off_p99_ms", key: "off_s", part: partSwitch, way: byChannels, of: bench.P99},
	{name: "kernel_off_call_median_ms", key: "off_call_s", part: partSwitch, way: byChannels, of: bench.Median, against: byPause},
	{name: "kernel_off_call_p99_ms", key: "off_call_s", part: partSwitch, way: byChannels, of: bench.P99, against: byPause},
	{name: "kernel_on_median_ms", key: "on_s", part: partSwitch, way: byChannels, of: bench.Median},
	{name: "kernel_on_p99_ms", key: "on_s", part: partSwitch, way: byChannels, of: bench.P99},
	{name: "kernel_on_call_median_ms", key: "on_call_s", part: partSwitch, way: byChannels, of: bench.Median, against: byPause},
	{name: "startups_kernel_off_median_ms", key: "off_s", part: partStartups, way: switched, of: bench.Median},
	{name: "startups_kernel_off_p99_ms", key: "off_s", part: partStartups, way: switched, of: bench.P99},
	{name: "startups_kernel_off_call_p99_ms", key: "off_call_s", part: partStartups, way: switched, of: bench.P99},
	{name: "startups_kernel_on_p99_ms", key: "on_s", part: partStartups, way: switched, of: bench.P99},
	{name: "find_new_median_ms", key: "find_s", part: partFind, way: newOne, of: bench.Median},
	{name: "find_new_max_ms", key: "find_s", part: partFind, way: newOne, of: bench.Max},
	{name: "find_again_max_ms", key: "find_s", part: partFind, way: again, of: bench.Max},
	{name: "find_old_ms", key: "find_s", part: partFind, way: oldOne, of: bench.Max},
	{name: "find_old_at_once_ms", key: "find_s", part: partFind, way: oldOnes, of: bench.Max},
	{name: "ends_gone_max_ms", key: "gone_s", part: partEnds, of: bench.Max, beside: partOn},
	{name: "ends_memory_free_median_ms", key: "free_s", part: partEnds, of: bench.Median, beside: partOn},
	{name: "ends_memory_free_max_ms", key: "free_s", part: partEnds, of: bench.Max, beside: partOn},
	{name: "ends_destroy_memory_free_median_ms", key: "free_s", part: partEnds, way: byDestroy, of: bench.Median, beside: partOn},
	{name: "kills_undone_median_ms", key: "undone_s", part: partKills, way: killedOne, of: bench.Median},
	{name: "kills_undone_max_ms", key: "undone_s", part: partKills, way: killedOne, of: bench.Max},
	{name: "kills_both_undone_after_start_median_ms", key: "undone_s", part: partKills, way: killedBoth, of: bench.Median},
	{name: "kills_both_undone_after_start_max_ms", key: "undone_s", part: partKills, way: killedBoth, of: bench.Max},
}

// counted are the figures of things that happened so often, most of which must not.
var counted = []struct{ name, key, part, way, unit string }{
	{"kernel_moved_while_off", "moved", partSwitch, byChannels, "times"},
	{"kernel_calls_failed", "failed", partSwitch, byChannels, "calls"},
	{"kernel_stuck", "stuck", partSwitch, byChannels, "times"},
	{"kernel_wrong", "wrong", partSwitch, "", "containers"},
	{"paused_kernels_that_ran_on", "ran_on", partSwitch, byPause, "kernels"},
	{"startups_kernel_moved_while_off", "moved", partStartups, switched, "times"},
	{"startups_kernel_calls_failed", "failed", partStartups, switched, "calls"},
	{"startups_kernel_stuck", "stuck", partStartups, switched, "times"},
	{"find_old_missed", "missed", partFind, "", "processes"},
	{"ends_stuck", "stuck", partEnds, "", "tenants"},
	{"ends_memory_kept", "kept", partEnds, "", "tenants"},
	{"ends_left_on_record", "on_record", partEnds, "", "processes"},
	{"kills_stuck", "stuck", partKills, "", "kills"},
	{"kills_wrong", "wrong", partKills, "", "kills and results"},
}

func figures(rows []bench.Row) (all []bench.Figure) {
	for _, t := range times {
		from := of(rows, t.part, t.way)
		if t.part == partKills {
			from = undone(rows, t.way)
		}
		ours := known(from, t.key)
		f := bench.Figure{Name: t.name, Value: 1e3 * t.of(ours), Unit: "ms", Runs: len(ours)}
		other := cmp.Or(t.beside, t.against)
		theirs := known(of(rows, cmp.Or(t.beside, t.part), cmp.Or(t.against, t.way)), t.key)
		if t.way == byDestroy && len(theirs) == 0 {
			continue // a destroyed context waits for its kernel: alone the time says nothing
		}
		if other != "" && len(theirs) > 0 {
			f.Against, f.Ratio = other, f.Value/(1e3*t.of(theirs))
		}
		all = append(all, f)
	}
	beside, without := known(of(rows, partStartups, switched), "start_s"), known(of(rows, partStartups, unswitched), "start_s")
	all = append(all, bench.Figure{Name: "startups_mean_s", Value: bench.Mean(beside), Unit: "s", Runs: len(beside),
		Against: unswitched, Ratio: bench.Mean(beside) / bench.Mean(without)})
	for _, c := range []struct{ name, way string }{{"find_new_calls", newOne}, {"find_old_calls", oldOne}} {
		calls := known(of(rows, partFind, c.way), "calls")
		all = append(all, bench.Figure{Name: c.name, Value: bench.Median(calls), Unit: "calls", Runs: len(calls)})
	}
	for _, c := range counted {
		if n, runs := sum(of(rows, c.part, c.way), c.key); runs > 0 {
			all = append(all, bench.Figure{Name: c.name, Value: n, Unit: c.unit, Runs: runs})
		}
	}
	if n, runs := killsThatMet(rows); runs > 0 {
		all = append(all, bench.Figure{Name: "kills_with_somebody_off", Value: float64(n), Unit: "kills", Runs: runs})
	}
	return all
}

// killsThatMet is how many kills found somebody off the GPU.
func killsThatMet(rows []bench.Row) (n, runs int) {
	all := known(of(rows, partKills, ""), "off")
	for _, off := range all {
		if off > 0 {
			n++
		}
	}
	return n, len(all)
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"PART", "MEASURED", "WAY", "N", "Q1 ms", "MEDIAN ms", "Q3 ms", "P99 ms", "MAX ms"}}
	add := func(part, title, key, way string) {
		from := of(rows, part, way)
		if part == partKills {
			from = undone(rows, way)
		}
		v := known(from, key)
		if len(v) == 0 {
			return
		}
		line := []string{part, title, way, fmt.Sprint(len(v))}
		for _, seconds := range []float64{bench.Quantile(v, 0.25), bench.Median(v), bench.Quantile(v, 0.75), bench.P99(v), bench.Max(v)} {
			line = append(line, bench.Number(1e3*seconds))
		}
		out = append(out, line)
	}
	add(partSwitch, "decision → the kernel's last beat", "off_s", byChannels)
	add(partSwitch, "decision → the kernel's own end", "off_s", byPause)
	for _, way := range []string{byChannels, byPause} {
		add(partSwitch, "decision → off, the call returned", "off_call_s", way)
		add(partSwitch, "decision → the kernel's first beat", "on_s", way)
		add(partSwitch, "decision → on, the call returned", "on_call_s", way)
	}
	add(partStartups, "decision → the kernel's last beat", "off_s", switched)
	add(partStartups, "decision → off, the call returned", "off_call_s", switched)
	add(partStartups, "decision → the kernel's first beat", "on_s", switched)
	for _, way := range []string{unswitched, switched} {
		add(partStartups, "a container's program → its first kernel's end", "start_s", way)
	}
	add(partFind, "context → its channels are found", "find_s", newOne)
	add(partFind, "the search", "search_s", newOne)
	for _, way := range []string{again, oldOne, oldOnes} {
		add(partFind, "the search", "find_s", way)
	}
	for _, e := range everyEnd {
		for _, part := range []string{partEnds, partOn} {
			add(part, "its end → the process is gone", "gone_s", e.way)
			add(part, "its end → its memory is free", "free_s", e.way)
		}
	}
	add(partKills, "kill → all on, with their own slices", "undone_s", killedOne)
	add(partKills, "next start → all on, with their own slices", "undone_s", killedBoth)
	if n, runs := sum(of(rows, partSwitch, byPause), "ran_on"); runs > 0 {
		out = append(out, note(partPause, fmt.Sprintf("%.0f of %d kernels ran on to their end while their container was paused", n, runs)))
	}
	for _, r := range rows {
		for _, key := range []string{"cannot", "failed"} {
			if why := r.Str(key); why != "" {
				out = append(out, note(r.Str("part"), key+": "+why))
			}
		}
	}
	return out
}

// note is a line without numbers.
func note(part, text string) []string { return []string{part, text, "", "", "", "", "", "", ""} }

// charts shows how long it takes until a kernel has stopped, and until it goes on.
func charts(rows []bench.Row) []chart.Chart {
	c := chart.Bars{Log: true, Head: chart.Head{Name: "kernel", Unit: "ms", Title: "From the decision until a running kernel has stopped, or goes on (less is better)",
		Series: []string{"stops, by its channels", "stops, by Docker's pause: at its end", "goes on, by its channels"}}}
	for _, g := range []struct {
		name string
		of   func([]float64) float64
	}{{"median", bench.Median}, {"p99", bench.P99}, {"longest", bench.Max}} {
		ms := func(key, way string) float64 { return 1e3 * g.of(known(of(rows, partSwitch, way), key)) }
		c.Groups = append(c.Groups, chart.Group{Name: g.name, Values: []float64{ms("off_s", byChannels), ms("off_s", byPause), ms("on_s", byChannels)}})
	}
	return []chart.Chart{c}
}
