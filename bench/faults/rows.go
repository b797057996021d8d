package faults

import (
	"math"
	"slices"
	"strconv"

	"github.com/laxity/laxity/bench"
)

// counted are the things that must not happen, as the rows call them.
var counted = []struct{ key, figure string }{
	{"stuck", "containers_stuck"},
	{"lost", "alerts_accepted_and_lost"},
	{"unpaused", "wrongly_unpaused"},
	{"repaused", "wrongly_paused_again"},
}

// count adds up what the rows have under key, and says how many have it; NaN if none
// does.
func count(rows []bench.Row, key string) (sum float64, runs int) {
	values := slices.DeleteFunc(bench.Column(rows, key, nil), math.IsNaN)
	return bench.Mean(values) * float64(len(values)), len(values)
}

func of(rows []bench.Row, way string) (out []bench.Row) {
	for _, r := range rows {
		if r.Str("way") == way {
			out = append(out, r)
		}
	}
	return out
}

// letGo is how long it took after each kill that found somebody held.
func letGo(rows []bench.Row) []float64 {
	return bench.Column(rows, "let_go", func(r bench.Row) bool { return r.Str("way") == killed && r.Num("held") > 0 })
}

func figures(rows []bench.Row) []bench.Figure {
	kills := of(rows, killed)
	took := letGo(rows)
	restarted := 0
	for _, way := range everyRestart {
		restarted += len(of(rows, way.String()))
	}
	out := []bench.Figure{
		{Name: "kills", Value: float64(len(kills)), Unit: "kills", Runs: len(kills)},
		{Name: "kills_while_it_starts", Value: float64(len(of(rows, early))), Unit: "kills", Runs: len(of(rows, early))},
		{Name: "kills_with_somebody_held", Value: float64(len(took)), Unit: "kills", Runs: len(kills)},
		{Name: "let_go_after_kill_median_ms", Value: 1000 * bench.Median(took), Unit: "ms", Runs: len(took)},
		{Name: "let_go_after_kill_max_ms", Value: 1000 * bench.Quantile(took, 1), Unit: "ms", Runs: len(took)},
	}
	if restarted > 0 {
		out = append(out, bench.Figure{Name: "dockerd_restarts", Value: float64(restarted), Unit: "restarts", Runs: restarted})
	}
	if r := of(rows, replayed); len(r) > 0 {
		out = append(out, bench.Figure{Name: "payloads_accepted", Value: r[0].Num("accepted"), Unit: "payloads", Runs: int(r[0].Num("sent"))})
	}
	for _, c := range counted {
		n, runs := count(rows, c.key)
		out = append(out, bench.Figure{Name: c.figure, Value: n, Unit: "times", Runs: runs})
	}
	return out
}

func table(rows []bench.Row) [][]string {
	took := letGo(rows)
	ms := func(q float64) string { return bench.Number(1000 * bench.Quantile(took, q)) }
	lines := [][]string{{"FAULT", "TIMES", "STUCK", "LOST", "WRONGLY UNPAUSED", "PAUSED AGAIN", "LET GO median ms", "MAX"}}
	var ways []string
	for _, way := range everyRestart {
		ways = append(ways, way.String())
	}
	for _, way := range append(ways, killed, early, replayed) {
		rows := of(rows, way)
		times, median, most := len(rows), "", ""
		if way == killed {
			median, most = ms(0.5), ms(1)
		}
		if way == replayed {
			times = int(bench.Column(append(rows, bench.Row{"sent": 0}), "sent", nil)[0])
		}
		line := []string{way, strconv.Itoa(times)}
		for _, c := range counted {
			n, _ := count(rows, c.key)
			line = append(line, bench.Number(n))
		}
		lines = append(lines, append(line, median, most))
	}
	return lines
}
