package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/laxity/laxity/exporter/task"
)

// opensIn returns in how many seconds the GPU is expected to take the request, from the ends of
// the tasks with a deadline that are queued there, earliest deadline first; ok is false where
// these say nothing. The memory of a container counts as free once its tasks have ended, as if
// it ended with them: whether it does nobody knows.
func (m Method) opensIn(g *GPU, req Request) (after task.Seconds, ok bool) {
	queued := slices.Clone(g.Work)
	slices.SortStableFunc(queued, func(a, b Work) int { return cmp.Compare(a.Due, b.Due) })
	later := *g
	for i, w := range queued {
		after += w.Left
		later.MemoryFree += w.Memory
		later.Work = nil
		for _, v := range queued[i+1:] {
			v.Due -= after
			later.Work = append(later.Work, v)
		}
		last := i == len(queued)-1
		later.Open = later.MemoryFree > 0 && (g.Open || !full(g) || last)
		// Who missed its last deadline is told by no queue.
		later.Provisionable = later.MemoryFree > 0 && !missed(g) && (!full(g) || last)
		if len(m.seat(&later, req).reasons) == 0 {
			return after, after > 0
		}
	}
	return 0, false
}

// opens fills in when a refused node is expected to take the request.
func (m Method) opens(v *Verdict, req Request) {
	for i := range v.Node.GPUs {
		if after, ok := m.opensIn(&v.Node.GPUs[i], req); ok && (v.OpensIn == 0 || after < v.OpensIn) {
			v.OpensIn = after
		}
	}
}

// Expected says when the first of the refused nodes is expected to take the request, for the
// end of a refusal.
func (r Ranking) Expected() string {
	var first *Verdict
	for i := range r {
		if v := &r[i]; v.OpensIn > 0 && (first == nil || v.OpensIn < first.OpensIn) {
			first = v
		}
	}
	if first == nil {
		return "when one can is not known: no end of a queued task would change it"
	}
	return fmt.Sprintf("%s is expected to in %s, when tasks queued there have ended", first.Node.Name, span(first.OpensIn.Duration()))
}
