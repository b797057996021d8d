package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/plan"
)

// AskAdmission answers whether a container that does not run yet could keep a deadline or share.
func (k *Core) AskAdmission(now time.Time, q admission.Question) (admission.Answer, error) {
	k.now = now
	if why := k.unusable(); why != "" {
		return admission.Answer{}, fmt.Errorf("this cannot be judged now: %s", why)
	}
	in := k.input()
	on := k.occupants(in)
	coming := k.coming(in, on)
	var best admission.Answer
	for _, g := range k.facts.snap.GPUs {
		if q.GPU != "" && q.GPU != g.UUID && q.GPU != k.facts.snap.GPUName(g.UUID) {
			continue
		}
		a := k.answer(on[g.UUID], coming[g.UUID], g.UUID, q)
		if best.Result == "" || better(a, best) {
			best = a
		}
	}
	if best.Result == "" {
		return best, fmt.Errorf("GPU %s of node %s: %w", q.GPU, k.node(), admission.ErrNoSuchPlace)
	}
	best.Node = k.node()
	return best, nil
}

// better reports whether a is the better answer for a person who can choose the GPU.
func better(a, b admission.Answer) bool {
	if a.Result != b.Result {
		order := []admission.Result{admission.Met, admission.Unknown, admission.Unmet}
		return slices.Index(order, a.Result) < slices.Index(order, b.Result)
	}
	return a.EarliestDeadline > 0 && (b.EarliestDeadline == 0 || a.EarliestDeadline < b.EarliestDeadline)
}

// starting is how long a container counts as one that is about to use its GPU.
const starting = 2 * time.Minute

// coming lists who has just been started on each GPU, and does not use it yet: what was promised to one of them
// a moment ago is not free for the next one who asks. Who sees several GPUs is not among them: nobody knows which one
// it will use.
func (k *Core) coming(in plan.Input, on map[string][]occupant) map[string][]occupant {
	there := map[string]bool{}
	for _, all := range on {
		for _, o := range all {
			there[o.c.ID] = true
		}
	}
	out := map[string][]occupant{}
	for i, c := range k.facts.snap.Containers {
		p := in.Containers[i]
		if p.Managed && !p.Never && !there[c.ID] && c.PID > 0 && len(c.VisibleGPUs) == 1 && k.now.Sub(c.Started) < starting {
			out[c.VisibleGPUs[0]] = append(out[c.VisibleGPUs[0]], occupant{c: c, p: p})
		}
	}
	return out
}

func (k *Core) answer(on, coming []occupant, gpu string, q admission.Question) admission.Answer {
	a := admission.Answer{Result: admission.Met, GPU: gpu}
	on = append(slices.Clip(on), coming...)
	if over := k.promised(on, gpu, q.Share).over; q.Share > 0 && over != "" {
		a.Result, a.Reason = admission.Unmet, "with it "+over
		return a
	}
	if q.Deadline <= 0 {
		return a
	}
	d, known := k.expected(q, k.history.Latest(q.Image))
	if !known {
		a.Result = admission.Unknown
		a.Reason = fmt.Sprintf("no task of image %s has ended here, so nobody knows what it needs", q.Image)
		if q.Server {
			a.Reason = fmt.Sprintf("too few requests of image %s have ended here to know what they need", q.Image)
		}
		return a
	}
	g := k.gpuOf(on, gpu, k.claimants(on, gpu))
	for _, o := range coming {
		if soon, known := k.expected(admission.Question{Server: o.server(), Deadline: o.c.Spec.Deadline.Duration()}, kindOfContainer(o.c)); known && o.deadline() {
			soon.Name = o.c.Name
			g.Admitted = append(g.Admitted, soon)
		}
	}
	if trouble := g.Admit(d); trouble.Kind != admission.None {
		a.Result, a.Reason = admission.Unmet, trouble.Words(d.Name, g.Beside())
		a.EarliestDeadline = g.Earliest(d).Seconds()
	}
	return a
}

// newcomer names the container that does not run yet.
const newcomer = "it"

// expected is what a container of the kind will need, by its history or by the question.
func (k *Core) expected(q admission.Question, kind estimate.Kind) (d admission.Demand, known bool) {
	d = admission.Demand{Name: newcomer, Within: q.Deadline, Server: q.Server}
	d.Beside = q.Estimate == 0 && k.history.Beside(kind)
	if q.Server {
		d.Need, d.Every, d.Usual, known = k.history.Requests(kind)
		if q.Estimate > 0 {
			d.Need = q.Estimate
		}
		return d, known
	}
	whole, known := k.history.Whole(kind)
	part := 1.0
	if mean, ok := k.history.Mean(kind); ok {
		part = mean
	}
	if q.Estimate > 0 {
		whole, known = q.Estimate, true
	}
	d.Alone, d.Need = whole, time.Duration(part*float64(whole))
	return d, known
}
