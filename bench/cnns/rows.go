package cnns

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/bench"
)

// rowsOf are the rows of a way in a run.
func (m *measurement) rowsOf(run int, way string, all, alone []*training) (rows []bench.Row, err error) {
	first := all[0].told
	var swaps map[string]int
	if way == laxity {
		decisions, err := m.Decisions(way)
		if err != nil {
			return nil, err
		}
		swaps = swapsOf(decisions)
	}
	for i, t := range all {
		row := bench.Row{
			"way": way, "run": run, "training": i, "model": t.model, "late": t.late, "outcome": t.outcome, "steps": t.result.steps,
			"right": t.right(alone[i]), "need": alone[i].need, "took": t.took.Seconds(), "end": t.told.Add(t.took).Sub(first).Seconds(),
			"swapped_out": swaps[t.Name],
		}
		if way == one {
			row["took"] = row["end"]
		} else {
			row["room"] = m.room
		}
		if hit := t.inTime(); !math.IsNaN(hit) {
			row["deadline"], row["hit"] = t.deadline.Seconds(), hit
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// swapsOf counts how often each container was swapped out, by its name.
func swapsOf(decisions []decision.Decision) map[string]int {
	n := map[string]int{}
	for _, d := range decisions {
		if d.Kind == decision.SwapOut && d.Result == decision.Done {
			n[d.Container]++
		}
	}
	return n
}

// summary is a way in a run.
type summary struct {
	trainings, ended, right, swaps, late, hits int
	makespan, mean                             float64 // seconds; mean of those that ended
}

func summaryOf(rows []bench.Row) (s summary) {
	var took []float64
	for _, r := range rows {
		s.trainings++
		s.makespan = max(s.makespan, r.Num("end"))
		s.swaps += int(r.Num("swapped_out"))
		if r.Str("outcome") == ended {
			s.ended++
			took = append(took, r.Num("took"))
		}
		if r.Num("right") == 1 {
			s.right++
		}
		if hit := r.Num("hit"); !math.IsNaN(hit) {
			s.late, s.hits = s.late+1, s.hits+int(hit)
		}
	}
	s.mean = bench.Mean(took)
	return s
}

// Right is how many trainings ended right by a way, of how many, and how often one was swapped out.
func Right(rows []bench.Row, way string) (right, trainings, swaps int) {
	s := summaryOf(slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r.Str("way") != way }))
	return s.right, s.trainings, s.swaps
}

func said(rows []bench.Row) string {
	s := summaryOf(rows)
	return fmt.Sprintf("%s: %d of %d ended, %d right, %d swapped out, %d of %d in time, %.1f s",
		rows[0].Str("way"), s.ended, s.trainings, s.right, s.swaps, s.hits, s.late, s.makespan)
}

// summaries are those of a way, a run each.
func summaries(rows []bench.Row, way string) (all []summary) {
	var runs []float64
	for _, r := range rows {
		if n := r.Num("run"); r.Str("way") == way && !slices.Contains(runs, n) {
			runs = append(runs, n)
		}
	}
	for _, n := range runs {
		all = append(all, summaryOf(slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r.Str("way") != way || r.Num("run") != n })))
	}
	return all
}

func total(all []summary, of func(summary) int) (n float64) {
	for _, s := range all {
		n += float64(of(s))
	}
	return n
}

func median(all []summary, of func(summary) float64) float64 {
	var v []float64
	for _, s := range all {
		v = append(v, of(s))
	}
	return bench.Median(v)
}

func figures(rows []bench.Row) []bench.Figure {
	ours, plain, alone := summaries(rows, laxity), summaries(rows, without), summaries(rows, one)
	if len(ours) == 0 {
		return nil
	}
	trainings := func(s summary) int { return s.trainings }
	of := fmt.Sprintf("of %.0f trainings", total(ours, trainings))
	right := func(s summary) int { return s.right }
	makespan := func(s summary) float64 { return s.makespan }
	return []bench.Figure{
		{Name: "cnns_right", Value: total(ours, right), Unit: of, Against: without, Ratio: total(ours, right) / total(plain, right), Runs: len(ours)},
		{Name: "cnns_wrong", Value: total(ours, func(s summary) int { return s.ended - s.right }), Unit: of, Runs: len(ours)},
		{Name: "cnns_swapped_out", Value: total(ours, func(s summary) int { return s.swaps }), Unit: "times", Runs: len(ours)},
		{
			Name: "cnns_makespan_s", Value: median(ours, makespan), Unit: "s", Against: one,
			Ratio: median(ours, makespan) / median(alone, makespan), Runs: len(ours),
		},
	}
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"WAY", "TRAININGS", "ENDED", "RIGHT", "SWAPPED OUT", "LATE ONES IN TIME", "MAKESPAN s", "MEAN TIME s", "RUNS"}}
	for _, way := range allWays {
		all := summaries(rows, way)
		if len(all) == 0 {
			continue
		}
		sum := func(of func(summary) int) string { return bench.Number(total(all, of)) }
		late := "-"
		if way != one {
			late = sum(func(s summary) int { return s.hits }) + " of " + sum(func(s summary) int { return s.late })
		}
		out = append(out, []string{
			way, sum(func(s summary) int { return s.trainings }), sum(func(s summary) int { return s.ended }), sum(func(s summary) int { return s.right }),
			sum(func(s summary) int { return s.swaps }), late, bench.Number(median(all, func(s summary) float64 { return s.makespan })),
			bench.Number(median(all, func(s summary) float64 { return s.mean })), fmt.Sprint(len(all)),
		})
	}
	return out
}
