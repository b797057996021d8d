package account

import (
	"fmt"
	"math"
	"slices"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
)

// phase is a time in which the same programs computed.
type phase struct {
	name        string
	first, last reading
}

func (p phase) lasts() float64 { return p.last.at - p.first.at }

func (p phase) grew() float64 { return p.last.counter - p.first.counter }

// batches counts those of a phase; one at its edge counts in part.
func (p phase) batches(spans []program.Span) (n float64) {
	for _, s := range spans {
		if inside := min(s.Ended, p.last.at) - max(s.Began, p.first.at); inside > 0 && s.Ended > s.Began {
			n += inside / (s.Ended - s.Began)
		}
	}
	return n
}

// truth is what a program showed while it was alone.
type truth struct {
	batch float64 // seconds of one, alone
	power float64 // W beyond the resting card
}

func truthOf(p phase, spans []program.Span, idle float64) (truth, error) {
	var each []float64
	for _, s := range spans {
		if s.Began >= p.first.at && s.Ended <= p.last.at {
			each = append(each, s.Ended-s.Began)
		}
	}
	if len(each) == 0 {
		return truth{}, fmt.Errorf("%s has computed nothing in %.0f s", p.name, p.lasts())
	}
	t := truth{batch: bench.Median(each)}
	t.power = (p.grew() - idle*p.lasts()) / (p.batches(spans) * t.batch)
	return t, nil
}

// rowsOf makes a row for each phase and program, and one for the card.
func rowsOf(phases []phase, spans map[string][]program.Span) (rows []bench.Row, err error) {
	idle := 0.0
	truths := map[string]truth{}
	for _, p := range phases {
		switch p.name {
		case resting:
			idle = p.grew() / p.lasts()
		case heavy, light:
			if truths[p.name], err = truthOf(p, spans[p.name], idle); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range phases {
		given, seconds, joules := 0.0, 0.0, idle*p.lasts()
		for _, name := range []string{heavy, light} {
			had, energy := p.use(name)
			given += energy
			if (p.name == heavy || p.name == light) && p.name != name || p.name == resting {
				continue
			}
			truly := p.batches(spans[name]) * truths[name].batch
			seconds, joules = seconds+truly, joules+truly*truths[name].power
			rows = append(rows, bench.Row{
				"phase": p.name, "program": name, "wall_s": p.lasts(), "batches": p.batches(spans[name]), "batch_s": truths[name].batch,
				"power_w": truths[name].power, "true_gpu_s": truly, "gpu_s": had, "true_j": truly * truths[name].power, "j": energy,
			})
		}
		card := bench.Row{"phase": p.name, "program": "card", "wall_s": p.lasts(), "counter_j": p.grew(), "true_gpu_s": seconds, "true_j": joules}
		for _, reason := range []string{"idle", "other", "unknown"} {
			v := p.last.unattributed[reason] - p.first.unattributed[reason]
			given += v
			card[reason+"_j"] = v
		}
		card["given_j"] = given
		rows = append(rows, card)
	}
	return rows, nil
}

// use is what a program had in a phase, by the exporter.
func (p phase) use(name string) (seconds, energy float64) {
	a, b := p.first.uses[name], p.last.uses[name]
	seconds = b.GPUSeconds - a.GPUSeconds
	if b.Energy != nil {
		energy = *b.Energy
	}
	if a.Energy != nil {
		energy -= *a.Energy
	}
	return seconds, energy
}

func off(r bench.Row, key, truly string) float64 { return r.Num(key)/r.Num(truly) - 1 }

func isProgram(r bench.Row) bool { return r.Str("program") != "card" }

// figures are the largest errors, as parts of the truth.
func figures(rows []bench.Row) (out []bench.Figure) {
	for _, name := range []string{both, unseen} {
		var seconds, energy []float64
		for _, r := range rows {
			if r.Str("phase") == name && isProgram(r) {
				seconds = append(seconds, math.Abs(off(r, "gpu_s", "true_gpu_s")))
				energy = append(energy, math.Abs(off(r, "j", "true_j")))
			}
		}
		if len(seconds) == 0 {
			continue
		}
		out = append(out,
			bench.Figure{Name: "account_" + name + "_gpu_seconds_error", Value: slices.Max(seconds), Unit: "of the truth", Runs: len(seconds) / 2},
			bench.Figure{Name: "account_" + name + "_energy_error", Value: slices.Max(energy), Unit: "of the truth", Runs: len(energy) / 2})
	}
	var sums []float64
	for _, r := range rows {
		if isProgram(r) {
			continue
		}
		sums = append(sums, math.Abs(off(r, "given_j", "counter_j")))
		if r.Str("phase") == both {
			out = append(out,
				bench.Figure{Name: "account_truth_seconds", Value: r.Num("true_gpu_s") / r.Num("wall_s"), Unit: "of the wall clock", Runs: 1},
				bench.Figure{Name: "account_truth_energy_error", Value: math.Abs(off(r, "true_j", "counter_j")), Unit: "of the counter", Runs: 1})
		}
	}
	if len(sums) > 0 {
		out = append(out, bench.Figure{Name: "account_sum_error", Value: slices.Max(sums), Unit: "of the counter", Runs: len(sums)})
	}
	return out
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"PHASE", "PROGRAM", "GPU-SECONDS", "TRULY", "OFF %", "JOULES", "TRULY", "OFF %"}}
	percent := func(v float64) string { return fmt.Sprintf("%+.1f", 100*v) }
	for _, r := range rows {
		if isProgram(r) {
			out = append(out, []string{
				r.Str("phase"), r.Str("program"), bench.Number(r.Num("gpu_s")), bench.Number(r.Num("true_gpu_s")), percent(off(r, "gpu_s", "true_gpu_s")),
				bench.Number(r.Num("j")), bench.Number(r.Num("true_j")), percent(off(r, "j", "true_j")),
			})
			continue
		}
		out = append(out, []string{r.Str("phase"), fmt.Sprintf("card: %.0f W", r.Num("counter_j")/r.Num("wall_s")), "", bench.Number(r.Num("true_gpu_s")), "",
			bench.Number(r.Num("given_j")), bench.Number(r.Num("counter_j")), percent(off(r, "given_j", "counter_j"))})
	}
	return out
}
