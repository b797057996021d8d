package policies

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

const gpu = "gpu"

// decide makes a plan of what is true now and sets its actions going, as the
// actuator does.
func (w *world) decide() {
	in := w.input()
	if len(in.Containers) == 0 {
		return
	}
	if w.policy != "order" {
		in.Beside = w.floor.Grant(in)
	}
	p := plan.Make(in)
	for _, id := range p.May()[gpu] {
		if !slices.Contains(w.may, id) {
			w.of(id).admitted = w.clock()
		}
	}
	w.held, w.may = p.Admitted[gpu], p.May()[gpu]
	for _, a := range p.Actions {
		q := w.of(a.ContainerID)
		if q.change > 0 && !w.gate {
			continue // one thing at a time
		}
		q.since = w.clock()
		w.last = w.now
		if w.gate {
			q.waits, q.cause = a.Kind == plan.Pause, a.Cause
			continue
		}
		q.changeTo, q.change = a.Kind == plan.Pause, w.now+pausing
	}
	if w.gate {
		w.admit(in)
		w.keepBack(p.Back)
	}
	w.plan = min(w.plan, w.now+tick)
}

// admit opens the gate for those that may compute, and closes it for the others.
func (w *world) admit(in plan.Input) {
	for _, c := range in.Containers {
		q, shut := w.of(c.ID), !slices.Contains(w.may, c.ID)
		switch {
		case q.change > 0 || q.closed == shut:
		case shut:
			q.closed = true
		default:
			q.changeTo, q.change = false, w.now+admitting
		}
	}
}

// keepBack stops those at their contexts that must not start up yet, and by a pause
// those that have begun; the others go on.
func (w *world) keepBack(back map[string]string) {
	for i, q := range w.all {
		want := back[strconv.Itoa(i)] != ""
		if q.back == want {
			continue
		}
		q.back, q.keep = want, w.now+pausing
		if q.at == opens && q.left == q.open {
			q.keep, q.kept = 0, want
		}
	}
}

func (w *world) of(id string) *process {
	i, _ := strconv.Atoi(id)
	return w.all[i]
}

func (w *world) input() plan.Input {
	now := w.clock()
	var in plan.Input
	if w.policy == "order" {
		in = plan.Input{Now: now, Order: given(w.order), Rule: plan.One{}, Preemption: &plan.Preemption{Never: true}}
	} else {
		in = actuator.Config{Policy: w.policy}.Input(now)
	}
	if w.crowd {
		in.Startup = nil
	}
	in.GPUs = []plan.GPU{{
		UUID: gpu, Arbitrated: true, Admitted: w.held, Utilization: w.unit.Utilization(lag), Memory: 0.1,
		Fresh: w.now-w.last >= settle,
	}}
	for i, p := range w.all {
		if p.at != away && p.at != ended {
			in.Containers = append(in.Containers, w.container(strconv.Itoa(i), i, p))
		}
	}
	return in
}

func (w *world) container(id string, i int, p *process) plan.Container {
	t := task.Task{ID: id, PID: i + 1, ContainerID: id, GPUs: []string{gpu}, State: task.Running, Start: task.Mark{Time: epoch.Add(p.arrive)}}
	if p.deadline > 0 {
		t.Deadline = t.Start.Time.Add(p.deadline)
	}
	t.PausedSeconds = task.Seconds((w.now - p.arrive - p.ran).Seconds())
	c := plan.Container{ID: id, Name: id, Managed: true, Standing: plan.Runs, Since: p.admitted, Tasks: []task.Task{t}}
	if stop := p.closed && p.change == 0 || p.change > 0 && p.changeTo; w.gate && p.waits || !w.gate && stop {
		c.Standing, c.Cause, c.Since = plan.Ours, cmp.Or(p.cause, plan.Arbitrate), p.since
	}
	if !w.blind {
		c.Estimates = map[string]plan.Estimate{id: w.estimate(p)}
		c.Demand = map[string]float64{gpu: p.demand()}
		c.Mean = map[string]float64{gpu: p.mean()}
	}
	if w.gate {
		c.Phase = w.phase(p)
	}
	return c
}

// estimate is what a history of many runs alone says of the process.
func (w *world) estimate(p *process) plan.Estimate {
	e := plan.Estimate{Total: p.alone()}
	rest := p.alone() - p.startup()
	if p.launched > 0 {
		e.Least = max(0, rest-(p.ran-p.launched))
	} else {
		e.Least = max(p.alone()-p.ran, rest)
		e.Startup = e.Least - rest
	}
	if e.Remaining = e.Least; e.Remaining == 0 {
		e.Remaining = p.ran / 4
	}
	return e
}

func (w *world) phase(p *process) plan.Phase {
	switch {
	case p.at == opens, p.at == host, p.at == copyIn:
		return plan.Preparing
	case p.at == gap, p.at == copyOut:
		return plan.Finishing
	case w.waiting(p):
		return plan.Waiting
	default:
		return plan.Computing
	}
}

// given is a fixed order of the jobs by index.
type given []int

// Compare implements policy.Order.
func (g given) Compare(a, b policy.Job) int {
	return slices.Index(g, a.PID-1) - slices.Index(g, b.PID-1)
}
