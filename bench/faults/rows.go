package faults

import (
	"strconv"

	"github.com/laxity/laxity/bench"
)

// counted are the things that must not happen, as the rows call them. unpaused and
// repaused are totals since the beginning; the others are of each row.
var counted = []struct {
	key, figure string
	total       bool
}{
	{"stuck", "containers_stuck", false},
	{"lost", "alerts_accepted_and_lost", false},
	{"unpaused", "wrongly_unpaused", true},
	{"repaused", "wrongly_paused_again", true},
}

func count(rows []bench.Row, key string, total bool) (n float64) {
	for _, r := range rows {
		switch v := r.Num(key); {
		case total:
			n = max(n, v)
		case v > 0:
			n += v
		}
	}
	return n
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
	out := []bench.Figure{
		{Name: "kills", Value: float64(len(kills)), Unit: "kills", Runs: len(kills)},
		{Name: "kills_while_it_starts", Value: float64(len(of(rows, early))), Unit: "kills", Runs: len(of(rows, early))},
		{Name: "kills_with_somebody_held", Value: float64(len(took)), Unit: "kills", Runs: len(kills)},
		{Name: "let_go_after_kill_median_ms", Value: 1000 * bench.Median(took), Unit: "ms", Runs: len(took)},
		{Name: "let_go_after_kill_max_ms", Value: 1000 * bench.Quantile(took, 1), Unit: "ms", Runs: len(took)},
	}
	if r := of(rows, replayed); len(r) > 0 {
		out = append(out, bench.Figure{Name: "payloads_accepted", Value: r[0].Num("accepted"), Unit: "payloads", Runs: int(r[0].Num("sent"))})
	}
	for _, c := range counted {
		out = append(out, bench.Figure{Name: c.figure, Value: count(rows, c.key, c.total), Unit: "times", Runs: len(rows)})
	}
	return out
}

func table(rows []bench.Row) [][]string {
	took := letGo(rows)
	ms := func(q float64) string { return bench.Number(1000 * bench.Quantile(took, q)) }
	lines := [][]string{{"FAULT", "TIMES", "STUCK", "LOST", "WRONGLY UNPAUSED", "PAUSED AGAIN", "LET GO median ms", "MAX"}}
	for _, way := range []string{killed, early, replayed} {
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
			line = append(line, bench.Number(count(rows, c.key, c.total)))
		}
		lines = append(lines, append(line, median, most))
	}
	return lines
}
