package plan

import (
	"slices"

	"github.com/laxity/laxity/actuator/policy"
)

// cede is the admission to a GPU where containers that are not ours to hold are greedy. What one of ours leaves
// while it is held, those take, and not who comes first: one after another all of ours would end later. So
// whom the rule refuses waits only if it comes last and a task has the turn whose deadline can be met, or if
// memory is nearly full. All others share the GPU, as without us.
type cede struct {
	Admission // of the rule
	planner   *planner
	gpu       GPU
	urgent    bool // such a task was taken
}

// cedes reports whether the rule gives way on a GPU to those that are not ours. With fifo and p3 it does not: that is
// the order that was asked for.
func (p *planner) cedes(g GPU) bool {
	_, places := p.in.Order.(policy.Placer)
	return g.Greedy && places && p.in.Preemption != nil
}

// admission is the one of the rule, within cede where that is due.
func (p *planner) admission(g GPU) Admission {
	a := p.in.Rule.Open(g)
	if p.cedes(g) {
		a = &cede{Admission: a, planner: p, gpu: g}
	}
	return a
}

func (a *cede) May(c Container) (bool, string) {
	ok, why := a.Admission.May(c)
	fits := a.gpu.Memory <= crowded || slices.Contains(a.gpu.Admitted, c.ID)
	if !ok && fits && (!a.urgent || a.placeOf(c) < policy.Last) {
		return true, "containers that may not be held would take what it leaves"
	}
	return ok, why
}

func (a *cede) Take(c Container) {
	a.Admission.Take(c)
	a.urgent = a.urgent || a.placeOf(c) <= policy.OnTime && !a.free(c)
}

// free reports whether the rule gives the container no turn: nobody waits for it.
func (a *cede) free(c Container) bool {
	rule, ok := a.Admission.(interface{ free(c Container) bool })
	return ok && rule.free(c)
}

func (a *cede) placeOf(c Container) policy.Place { return a.planner.place(c.Job(a.planner.in.Order)) }
