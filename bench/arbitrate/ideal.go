package arbitrate

import (
	"cmp"
	"slices"

	"github.com/laxity/laxity/bench"
)

// ideal is not a way: it is computed.
const ideal = "ideal"

// idealHits are the tasks of a run that would meet their deadlines if the GPU did the work of the one with the
// earliest deadline at any time, changed to another at no cost, and all else of a task were done before.
// EDF meets all deadlines that can be met on one processor (Dertouzos 1974): where it misses one, nobody
// meets them all. Kernels holds the seconds of kernels of a lone task of each kind.
func idealHits(run []bench.Row, kernels map[string]float64) (hits int) {
	work := make([]*piece, 0, len(run))
	for _, r := range run {
		left := kernels[r.Str("kind")]
		host := (r.Num("deadline_s")-grace)/leeway - left
		work = append(work, &piece{ready: r.Num("start") + host, due: r.Num("start") + r.Num("deadline_s"), left: left})
	}
	slices.SortFunc(work, func(a, b *piece) int { return cmp.Compare(a.ready, b.ready) })
	var waiting []*piece
	now := 0.0
	for len(work) > 0 || len(waiting) > 0 {
		if len(waiting) == 0 {
			now = work[0].ready
		}
		for len(work) > 0 && work[0].ready <= now {
			waiting = append(waiting, work[0])
			work = work[1:]
		}
		first := slices.MinFunc(waiting, func(a, b *piece) int { return cmp.Compare(a.due, b.due) })
		if len(work) > 0 && now+first.left > work[0].ready {
			first.left -= work[0].ready - now
			now = work[0].ready
			continue
		}
		now += first.left
		waiting = slices.DeleteFunc(waiting, func(p *piece) bool { return p == first })
		if now <= first.due {
			hits++
		}
	}
	return hits
}

// piece is a task's work on the GPU. Ready and due are moments, seconds.
type piece struct{ ready, due, left float64 }

// idealOf is the share of the tasks that an ideal EDF hits in all runs of the set mixed by time slicing, with
// the numbers of these tasks and runs. A lone task's kernels are the fastest of its kind.
func idealOf(rows []bench.Row) (share float64, tasks, runs int) {
	kernels := map[string]float64{}
	draws := map[float64][]bench.Row{}
	for _, r := range rows {
		if r.Str("set") != "mixed" || failed(r) {
			continue
		}
		kind := r.Str("kind")
		if least, ok := kernels[kind]; !ok || r.Num("kernels_s") < least {
			kernels[kind] = r.Num("kernels_s")
		}
		if r.Str("way") == timeSliced {
			draws[r.Num("run")] = append(draws[r.Num("run")], r)
			tasks++
		}
	}
	hits := 0
	for _, run := range draws {
		hits += idealHits(run, kernels)
	}
	return float64(hits) / float64(tasks), tasks, len(draws)
}
