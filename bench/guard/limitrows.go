package guard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/bench"
)

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// parseSteps reads what the processes of steps.c or steps.py have printed.
func parseSteps(text string, processes int, row bench.Row) error {
	var total uint64
	var answered, went, freed, refused int
	var refusals, obstacles []string
	for line := range strings.Lines(text) {
		var granted uint64
		var result, steps, on int
		var at string
		if _, err := fmt.Sscan(line, &granted, &result, &at, &steps, &on); err != nil {
			return fmt.Errorf("%w in %q", err, line)
		}
		total += granted
		went += on
		freed += steps
		answered++
		if fields := strings.Fields(line)[5:]; len(fields) > 0 && fields[0] != "-" {
			obstacles = append(obstacles, strings.Join(fields, " "))
		}
		switch {
		case result == outOfMemory:
			refused++
			at = "out of memory by " + at
		case result != 0:
			at = fmt.Sprintf("error %d by %s", result, at)
		default:
			at = "none"
		}
		refusals = append(refusals, at)
	}
	row["granted"], row["answered"], row["refused"], row["freed"], row["on"] = float64(total), answered, refused, freed, went
	row["refusal"], row["obstacle"] = each(refusals), each(obstacles)
	if answered < processes {
		return fmt.Errorf("%d of %d processes answered", answered, processes)
	}
	return nil
}

// each lists what was said, each once.
func each(said []string) string {
	var once []string
	for _, s := range said {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return strings.Join(once, "; ")
}

func subjectRow(rows []bench.Row, name, way string) (bench.Row, bool) {
	for _, r := range rows {
		if _, step := r["step_s"]; !step && r.Str("subject") == name && r.Str("way") == way {
			return r, true
		}
	}
	return nil, false
}

const mib = 1 << 20

var limitWays = []string{without, guarded, hamiCore}

func limitFigures(rows []bench.Row) []bench.Figure {
	out := slices.Concat(holds(rows, guarded, "limits"), holds(rows, hamiCore, "limits_hami_core"))
	for _, c := range []struct{ figure, name, way string }{
		{"guard_step_more_ms", normal, guarded}, {"guard_step_no_caching_more_ms", noCache, guarded},
		{"guard_step_apart_more_ms", normal + apart, guarded}, {"guard_step_no_caching_apart_more_ms", noCache + apart, guarded},
		{"hami_core_step_more_ms", normal + apart, hamiCore}, {"hami_core_step_no_caching_more_ms", noCache + apart, hamiCore},
	} {
		out = append(out, addedToStep(rows, c.name, c.way).quartiles(c.figure, "ms", 1e3)...)
	}
	return out
}

// holds says how a way's limits held.
func holds(rows []bench.Row, way, name string) []bench.Figure {
	var all, runs, refused, on int
	over := 0.0
	for _, s := range subjects {
		if _, ok := subjectRow(rows, s.name, without); ok {
			all++
		}
		r, ok := subjectRow(rows, s.name, way)
		if !ok {
			continue
		}
		runs++
		if r.Num("refused") == r.Num("processes") && r.Num("failed_open") == 0 {
			refused++
		}
		if r.Num("on") == r.Num("processes") {
			on++
		}
		// Managed memory is not in the device's account.
		if more := (max(r.Num("held"), r.Num("granted")) - r.Num("limit")) / mib; runs == 1 || more > over {
			over = more
		}
	}
	if runs == 0 {
		return nil
	}
	unit := fmt.Sprintf("of %d ways", max(all, runs))
	return []bench.Figure{
		{Name: name + "_refused", Value: float64(refused), Unit: unit, Runs: runs},
		{Name: name + "_went_on", Value: float64(on), Unit: unit, Runs: runs},
		{Name: name + "_most_over", Value: over, Unit: "MiB over the limit", Runs: runs},
	}
}

func stepOf(rows []bench.Row, name, way string) []float64 {
	return bench.Column(rows, "step_s", func(r bench.Row) bool {
		_, ok := r["step_s"]
		return ok && r.Str("subject") == name && r.Str("way") == way
	})
}

// addedToStep is what a way adds to the median step of a turn, or of a process.
func addedToStep(rows []bench.Row, name, way string) added {
	return addedTo(stepOf(rows, name, without), stepOf(rows, name, way))
}

// wentOn says how many processes did, and what kept the others from it.
func wentOn(r bench.Row) string {
	text := fmt.Sprintf("%.0f of %.0f", r.Num("on"), r.Num("processes"))
	if o := r.Str("obstacle"); o != "" && r.Num("on") < r.Num("processes") {
		text += " (" + o + ")"
	}
	return text
}

func limitTable(rows []bench.Row) [][]string {
	out := [][]string{{"HOW IT ALLOCATES", "WAY", "LIMIT MiB", "GRANTED MiB", "HELD MiB, MOST", "REFUSED", "FREED, STEPS", "WENT ON"}}
	for _, s := range subjects {
		for _, way := range limitWays {
			r, ok := subjectRow(rows, s.name, way)
			if !ok {
				continue
			}
			bound := "-"
			if way != without {
				bound = fmt.Sprintf("%.0f", r.Num("limit")/mib)
			}
			refusal := r.Str("refusal")
			if e := r.Str("error"); e != "" {
				refusal = strings.TrimSpace(refusal + " (" + strings.Split(e, "\n")[0] + ")")
			}
			if n := r.Num("failed_open"); n > 0 {
				refusal += fmt.Sprintf(" (%.0f passed that should not)", n)
			}
			out = append(out, []string{s.name, way, bound, fmt.Sprintf("%.0f", r.Num("granted")/mib), fmt.Sprintf("%.0f", r.Num("held")/mib),
				refusal, fmt.Sprintf("%.0f", r.Num("freed")), wentOn(r)})
		}
	}
	for _, name := range []string{normal, noCache, normal + apart, noCache + apart} {
		for _, way := range limitWays {
			v := stepOf(rows, name, way)
			if len(v) == 0 {
				continue
			}
			text := fmt.Sprintf("%.3f ms a step", 1e3*bench.Median(v))
			if a := addedToStep(rows, name, way); len(a.seconds) > 0 && way != without {
				median, quartiles := a.text(1e3)
				text += fmt.Sprintf(", %s beside without (%s)", median, quartiles)
			}
			out = append(out, []string{name, way, "-", "-", "-", text, "-", "-"})
		}
	}
	return out
}
