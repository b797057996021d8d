package policies

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/laxity/laxity/actuator/config"
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
		if q.change > 0 {
			continue // one thing at a time
		}
		q.since, q.cause = w.clock(), a.Cause
		w.last = w.now
		q.changeTo, q.change = a.Kind == plan.Pause, w.now+pausing
	}
	w.plan = min(w.plan, w.now+tick)
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
		in = config.Config{Policy: w.policy}.Input(now)
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
	if p.stopped && p.change == 0 || p.change > 0 && p.changeTo {
		c.Standing, c.Cause, c.Since = plan.Ours, cmp.Or(p.cause, plan.Arbitrate), p.since
	}
	c.Estimates = map[string]plan.Estimate{id: estimate(p)}
	c.Demand = map[string]float64{gpu: p.demand()}
	c.Mean = map[string]float64{gpu: p.mean()}
	return c
}

// estimate is what a history of many runs alone says of the process.
func estimate(p *process) plan.Estimate {
	e := plan.Estimate{Total: p.alone(), Least: max(0, p.alone()-p.ran)}
	if e.Remaining = e.Least; e.Remaining == 0 {
		e.Remaining = p.ran / 4
	}
	return e
}

// given is a fixed order of the jobs by index.
type given []int

// Compare implements policy.Order.
func (g given) Compare(a, b policy.Job) int {
	return slices.Index(g, a.PID-1) - slices.Index(g, b.PID-1)
}
