package policies

import (
	"slices"
	"strconv"
	"time"

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
	p := plan.Make(in)
	for _, id := range p.Admitted[gpu] {
		if !slices.Contains(w.held, id) {
			w.of(id).admitted = w.clock()
		}
	}
	w.held = p.Admitted[gpu]
	for _, a := range p.Actions {
		q := w.of(a.ContainerID)
		if q.change > 0 {
			continue // one thing at a time
		}
		q.changeTo = a.Kind == plan.Pause
		q.change = w.now + w.cost(q.changeTo)
		q.since = w.clock()
		w.last = w.now
	}
	w.plan = min(w.plan, w.now+tick)
}

func (w *world) cost(stop bool) time.Duration {
	switch {
	case !w.gate:
		return pausing
	case stop:
		return 100 * time.Microsecond
	default:
		return admitting
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
	c := plan.Container{ID: id, Name: id, Managed: true, Standing: plan.Runs, Since: p.admitted, Tasks: []task.Task{t}}
	if stop := p.closed && p.change == 0 || p.change > 0 && p.changeTo; stop {
		c.Standing, c.Cause, c.Since = plan.Ours, plan.Arbitrate, p.since
	}
	if !w.blind {
		left := p.alone() - p.ran
		if left < 0 {
			left = p.ran / 4
		}
		c.Estimates = map[string]plan.Estimate{id: {Remaining: left, Total: p.alone()}}
		c.Demand = map[string]float64{gpu: p.demand()}
		c.Mean = map[string]float64{gpu: p.mean()}
	}
	if w.gate {
		c.Phase = w.phase(p)
	}
	return c
}

func (w *world) phase(p *process) plan.Phase {
	switch {
	case p.at == host, p.at == copyIn:
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
