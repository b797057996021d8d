package zoo

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/laxity/laxity/bench"
)

// Ways of rows.
const (
	aRound   = "round"
	unplayed = "unplayed round" // something beside Laxity failed
)

// drawnRow is what was drawn for a round.
func drawnRow(r round) bench.Row {
	row := bench.Row{
		"way": aRound, "seed": float64(r.seed), "standard": r.standard, "settings": settingsOf(r), "containers": len(r.containers), "kinds": kindsOf(r),
	}
	if len(r.deaths) > 0 {
		var all []string
		for _, d := range r.deaths {
			all = append(all, d.String())
		}
		row["deaths"] = strings.Join(all, ", ")
	}
	return row
}

// notStartedRow is a round whose containers had no Laxity that started.
func notStartedRow(r round, err error) bench.Row {
	row := drawnRow(r)
	row["stuck"], row["failed"], row["wrong"], row["stray"] = 0, len(r.containers), 0, 0
	row["trouble"] = []string{"failed: Laxity did not start: " + err.Error()}
	return row
}

// rowOf judges a round.
func rowOf(r round, ours, theirs outcome, reference bool) bench.Row {
	row := drawnRow(r)
	row["seconds"], row["longest_stand"], row["longest_off"], row["channel_changes"] = ours.seconds, ours.longest, ours.off, ours.counts.changes
	if reference {
		row["seconds_without"] = theirs.seconds
		row["ratio"] = ours.seconds / theirs.seconds
	}
	bad := map[string]map[int]bool{"stuck": {}, "failed": {}, "wrong": {}, "stray": {}}
	var said []string
	for _, t := range ours.troubles {
		what := "stuck"
		if t.stray {
			what = "stray"
		}
		bad[what][t.container] = true
		said = append(said, what+": "+t.what)
	}
	for i, d := range r.containers {
		e := ours.ends[i]
		if what := judge(d, e, r.dies(i), reference, theirs, i); what != "" {
			bad[what][i] = true
			said = append(said, fmt.Sprintf("%s: container %d (%s %s, %s): %v%s; %s", what, i, d.kind.name, strings.Join(d.args, " "), labelText(d.labels), e, besides(reference, theirs, i), ours.said[i]))
		}
		if e.conts > 0 {
			bad["stray"][i] = true
			said = append(said, fmt.Sprintf("stray: container %d (%s, %s) was continued %d times", i, d.kind.name, labelText(d.labels), e.conts))
		}
	}
	for what, containers := range bad {
		row[what] = len(containers)
	}
	row["stray"] = len(bad["stray"]) + len(ours.left) + int(ours.counts.strays)
	for _, l := range ours.left {
		said = append(said, "stray: "+l)
	}
	if ours.counts.strays > 0 {
		said = append(said, fmt.Sprintf("stray: %s is %v", strayMetric, ours.counts.strays))
	}
	if odd := oddWithout(r, theirs, reference); len(odd) > 0 {
		row["odd_without"] = odd
	}
	if len(said) > 0 {
		row["trouble"] = said
	}
	return row
}

// judge says whether a container was failed or wrong; empty: neither.
func judge(d drawn, e end, doomed, reference bool, theirs outcome, i int) string {
	switch {
	case e.late || e.unstarted || doomed: // stuck, not there, or it may end as it likes
		return ""
	case e.right(d.kind):
		return ""
	case reference && !theirs.ends[i].late && theirs.ends[i].code == e.code && theirs.ends[i].result == e.result:
		return "" // it is so without Laxity
	case !e.codeOf(d.kind):
		return "failed"
	}
	return "wrong"
}

func besides(reference bool, theirs outcome, i int) string {
	if !reference {
		return ""
	}
	return fmt.Sprintf("; without Laxity %v", theirs.ends[i])
}

// oddWithout are the containers that did not end as they should without Laxity.
func oddWithout(r round, theirs outcome, reference bool) (odd []string) {
	for i, d := range r.containers {
		if reference && !r.dies(i) && !theirs.ends[i].right(d.kind) {
			odd = append(odd, fmt.Sprintf("container %d (%s %s): %v; %s", i, d.kind.name, strings.Join(d.args, " "), theirs.ends[i], theirs.said[i]))
		}
	}
	return odd
}

func settingsOf(r round) string {
	switch {
	case r.standard:
		return "laxity up"
	case r.services:
		return "services " + strings.Join(r.flags, " ")
	}
	return "laxity up " + strings.Join(r.flags, " ")
}

// kindsOf names what ran, with labels: a container each.
func kindsOf(r round) (all []string) {
	for _, d := range r.containers {
		all = append(all, d.kind.name+": "+labelText(d.labels))
	}
	return all
}

// progress is one round in a line, and what was wrong in lines of its own.
func progress(number int, row bench.Row) string {
	text := fmt.Sprintf("round %d (seed %.0f, %s): %.0f containers, %.1f s", number, row.Num("seed"), row.Str("settings"), row.Num("containers"), row.Num("seconds"))
	if s := row.Num("seconds_without"); !math.IsNaN(s) {
		text += fmt.Sprintf(" (%.1f without)", s)
	}
	if d := row.Str("deaths"); d != "" {
		text += "; dies: " + d
	}
	if bad := row.Num("stuck") + row.Num("failed") + row.Num("wrong") + row.Num("stray"); bad > 0 {
		text += fmt.Sprintf("; STUCK %.0f FAILED %.0f WRONG %.0f STRAY %.0f", row.Num("stuck"), row.Num("failed"), row.Num("wrong"), row.Num("stray"))
	}
	for _, key := range []string{"trouble", "odd_without"} {
		lines, _ := row[key].([]string)
		for _, l := range lines {
			text += "\n    " + strings.TrimPrefix(key+" ", "trouble ") + l
		}
	}
	return text
}

func sum(rows []bench.Row, key string, keep func(bench.Row) bool) (total float64, n int) {
	for _, v := range bench.Column(rows, key, keep) {
		if !math.IsNaN(v) {
			total, n = total+v, n+1
		}
	}
	return total, n
}

func figures(rows []bench.Row) (all []bench.Figure) {
	for _, key := range []string{"containers", "stuck", "failed", "wrong", "stray"} {
		total, n := sum(rows, key, bench.Way(aRound))
		if n == 0 {
			continue
		}
		all = append(all, bench.Figure{Name: "zoo_" + key, Value: total, Unit: "containers", Runs: n})
	}
	standard, n := sum(rows, "containers", func(r bench.Row) bool { return r.Str("way") == aRound && r["standard"] == true })
	if n > 0 {
		all = append(all, bench.Figure{Name: "zoo_containers_default_flags", Value: standard, Unit: "containers", Runs: n})
	}
	if total, n := sum(rows, "channel_changes", bench.Way(aRound)); n > 0 {
		all = append(all, bench.Figure{Name: "zoo_channel_changes", Value: total, Unit: "changes", Runs: n})
		off := bench.Column(rows, "longest_off", func(r bench.Row) bool { return r["longest_off"] != nil })
		if longest := slices.Max(off); longest > 0 { // 0 on a real GPU, which does not tell
			all = append(all, bench.Figure{Name: "zoo_longest_off_seconds", Value: longest, Unit: "s", Runs: n})
		}
	}
	played := slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r["standard"] != true || r.Str("deaths") != "" })
	ratios := bench.Known(played, aRound, "ratio")
	return append(all, bench.Figure{Name: "zoo_round_time_ratio", Value: bench.Median(ratios), Unit: "×", Runs: len(ratios)})
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"ROUNDS", "RUNS", "CONTAINERS", "STUCK", "FAILED", "WRONG", "STRAY", "S", "RAN WITHOUT, TOO", "S OF THOSE", "S WITHOUT"}}
	group := func(r bench.Row) string {
		name, _, _ := strings.Cut(r.Str("settings"), " --")
		switch {
		case r["standard"] == true:
			name = "laxity up, default flags"
		case name != "services":
			name = "laxity up, other flags"
		default:
			name = "three programs, other flags"
		}
		if r.Str("deaths") != "" {
			name += ", somebody dies"
		}
		return name
	}
	var names []string
	for _, r := range rows {
		if r.Str("way") == aRound && !slices.Contains(names, group(r)) {
			names = append(names, group(r))
		}
	}
	slices.Sort(names)
	for _, name := range names {
		of := func(r bench.Row) bool { return r.Str("way") == aRound && group(r) == name }
		line := []string{name, ""}
		for _, key := range []string{"containers", "stuck", "failed", "wrong", "stray"} {
			total, n := sum(rows, key, of)
			line[1] = fmt.Sprint(n)
			line = append(line, bench.Number(total))
		}
		both := func(r bench.Row) bool { return of(r) && r["seconds_without"] != nil }
		without := bench.Column(rows, "seconds_without", both)
		lines = append(lines, append(line, bench.Number(bench.Median(bench.Column(rows, "seconds", of))), fmt.Sprint(len(without)),
			bench.Number(bench.Median(bench.Column(rows, "seconds", both))), bench.Number(bench.Median(without))))
	}
	return lines
}
