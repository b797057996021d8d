package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/plan/greed"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// The world of the properties: one GPU that containers share by time slicing, and
// pauses that take a while, in virtual time. Times are in seconds.

const (
	pausing = 0.02 // a pause or an unpause takes effect
	ticking = 0.5  // between two plans where nothing happens
	// preempting is the longest that stopping one and releasing another takes.
	preempting = 3 * pausing
)

// tenant is a container: a task, or a server with a request after the other.
type tenant struct {
	server, batch bool
	other         bool    // it is not ours to hold
	deadline      float64 // after the start of each task; 0: none
	known         bool    // how long it takes was learned before
	every         float64 // of a server: from an answer to the next request
	work          float64 // of a task: with the GPU to itself; +Inf: it never ends

	at       float64 // its next arrival; of an unfinished task its start
	here     bool
	tasks    int // so far
	left     float64
	got      float64 // GPU time in all
	frozen   bool
	changing float64 // when freeze takes effect; 0: nothing is under way
	freeze   bool
	since    float64
	ended    float64
	took     []float64 // each of its tasks that have ended

	held, behind, wanted float64 // contiguous: kept from computing; behind batch alone; wants the GPU since
}

// world is the GPU with its tenants.
type world struct {
	now      float64
	tenants  []*tenant
	admitted []string
	floor    plan.Floor
	rule     plan.Rule
	llf      bool
	next     float64            // plan
	watch    func(step float64) // called after each step; may be nil
	free     bool               // nobody plans
	judge    greed.Judge
}

func clock(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

func (v *tenant) computes() bool { return v.here && !v.frozen }

// urgent: it has a deadline that counts.
func (v *tenant) urgent() bool { return v.here && v.deadline > 0 && !v.batch }

// run lets time pass until every task has ended that can, and the least time is over.
func (w *world) run(least float64) {
	for w.now < least || slices.ContainsFunc(w.tenants, func(v *tenant) bool { return !v.server && !math.IsInf(v.work, 1) && v.ended == 0 }) {
		w.step()
	}
}

func (w *world) step() {
	to := w.next
	n := 0.0
	for _, v := range w.tenants {
		if v.computes() {
			n++
		}
	}
	for _, v := range w.tenants {
		switch {
		case v.computes():
			to = min(to, w.now+v.left*n)
		case !v.here && v.ended == 0:
			to = min(to, v.at)
		}
		if v.changing > 0 {
			to = min(to, v.changing)
		}
	}
	step := max(to, w.now) - w.now
	w.count(step)
	for _, v := range w.tenants {
		if v.computes() {
			v.left, v.got = v.left-step/n, v.got+step/n
		}
	}
	w.now += step
	w.read(n)
	if w.watch != nil {
		w.watch(step)
	}
	for _, v := range w.tenants {
		w.happen(v)
	}
	if w.next <= w.now {
		w.decide()
	}
}

// count notes how long each has been kept, before the step.
func (w *world) count(step float64) {
	urgent, batch := false, false
	for _, v := range w.tenants {
		urgent = urgent || v.computes() && v.urgent()
		batch = batch || v.computes() && !v.urgent()
	}
	for _, v := range w.tenants {
		add(&v.held, step, v.here && v.frozen)
		add(&v.behind, step, v.urgent() && v.frozen && batch && !urgent)
		add(&v.wanted, step, v.here)
	}
}

func add(sum *float64, step float64, goesOn bool) {
	*sum += step
	if !goesOn {
		*sum = 0
	}
}

// read tells the judge what those that are not ours have used, of a GPU that n computed on.
func (w *world) read(n float64) {
	parts := map[string]float64{}
	for i, v := range w.tenants {
		switch {
		case !v.other || !v.here:
		case v.frozen:
			parts[fmt.Sprint(i)] = 0
		default:
			parts[fmt.Sprint(i)] = 1 / n
		}
	}
	w.judge.Read(clock(w.now), parts)
}

func (w *world) happen(v *tenant) {
	before := *v
	if v.changing > 0 && v.changing <= w.now {
		v.frozen, v.changing = v.freeze, 0
	}
	switch {
	case v.here && v.left <= 1e-9:
		v.took = append(v.took, w.now-v.at)
		v.here, v.at = false, w.now+v.every
		if !v.server {
			v.ended = w.now
		}
	case !v.here && v.ended == 0 && v.at <= w.now:
		v.here, v.left, v.at = true, v.work, w.now
		v.tasks++
	}
	if v.here != before.here || v.frozen != before.frozen {
		w.next = w.now
	}
}

// decide makes a plan and sets its actions going, as the actuator does.
func (w *world) decide() {
	w.next = w.now + ticking
	in := w.input()
	if len(in.Containers) == 0 || w.free {
		w.admitted = nil
		return
	}
	in.Beside = w.floor.Grant(in)
	p := plan.Make(in)
	for _, id := range p.May()["g"] {
		if !slices.Contains(w.admitted, id) {
			w.of(id).since = w.now
		}
	}
	w.admitted = p.Admitted["g"]
	for _, a := range p.Actions {
		if v := w.of(a.ContainerID); v.changing == 0 {
			v.freeze, v.changing, v.since = a.Kind == plan.Pause, w.now+pausing, w.now
		}
	}
}

func (w *world) of(id string) *tenant {
	var i int
	_, _ = fmt.Sscan(id, &i)
	return w.tenants[i]
}

func (w *world) input() plan.Input {
	now := clock(w.now)
	in := plan.Input{Now: now, Rule: w.rule, Preemption: plan.DefaultPreemption()}
	in.Order = policy.LateLast{Placer: policy.EDF{Now: now}, Now: now}
	if w.llf {
		in.Order = policy.LateLast{Placer: policy.LLF{Now: now}, Now: now}
	}
	use, strangers := 0.0, []string{}
	for i, v := range w.tenants {
		if !v.here {
			continue
		}
		if !v.frozen {
			use = 1
		}
		in.Containers = append(in.Containers, v.container(fmt.Sprint(i)))
		if v.other {
			strangers = append(strangers, fmt.Sprint(i))
		}
	}
	in.GPUs = []plan.GPU{{UUID: "g", Utilization: use, Memory: 0.1, Fresh: true, Arbitrated: true, Admitted: w.admitted, Greedy: w.judge.Greedy(strangers)}}
	return in
}

func (v *tenant) container(id string) plan.Container {
	t := task.Task{ID: fmt.Sprintf("%s.%d", id, v.tasks), ContainerID: id, GPUs: []string{"g"}, State: task.Running, Start: task.Mark{Time: clock(v.at)}}
	if v.deadline > 0 {
		t.Deadline = clock(v.at + v.deadline)
	}
	c := plan.Container{ID: id, Name: id, Managed: !v.other, Standing: plan.Runs, Since: clock(v.since), Batch: v.batch, Tasks: []task.Task{t}}
	c.Server = v.server
	if stopped := v.frozen && v.changing == 0 || v.changing > 0 && v.freeze; stopped {
		c.Standing, c.Cause = plan.Ours, plan.Arbitrate
	}
	if v.known && !math.IsInf(v.work, 1) {
		left := time.Duration(v.left * float64(time.Second))
		c.Estimates = map[string]plan.Estimate{t.ID: {Remaining: left, Least: left, Total: time.Duration(v.work * float64(time.Second))}}
	}
	return c
}

// drawWorld draws a few tenants: on time, hopeless, batch, endless, and servers.
func drawWorld(r *rand.Rand) *world {
	w := &world{rule: plan.Adaptive{}, llf: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		w.rule = plan.One{}
	}
	w.floor.Share = []float64{0.05, 0.1, 0.2}[r.IntN(3)]
	uniform := func(from, to float64) float64 { return from + (to-from)*r.Float64() }
	for range 2 + r.IntN(3) {
		v := &tenant{at: uniform(0, 2), known: r.IntN(2) == 0, work: uniform(0.05, 1.5)}
		switch r.IntN(6) {
		case 0, 1:
			v.batch = true
		case 2:
			v.server, v.work, v.every = true, uniform(0.001, 0.3), uniform(0.3, 1.5)
			v.deadline = uniform(0.5, 4) * v.work
			v.known = v.known && v.work > 0.1
			w.tenants = append(w.tenants, v)
			continue
		default:
			v.deadline = uniform(0.5, 8) * v.work
		}
		if v.batch && r.IntN(2) == 0 {
			v.deadline = uniform(0.5, 8) // it does not count
		}
		if r.IntN(5) == 0 {
			v.work = math.Inf(1)
			if v.deadline > 0 {
				v.deadline = uniform(1, 10)
			}
		}
		w.tenants = append(w.tenants, v)
	}
	return w
}
