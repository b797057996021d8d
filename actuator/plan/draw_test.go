package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

var epoch = time.Unix(1_700_000_000, 0)

// now is late enough for some tasks to have missed, for others to have time.
var now = epoch.Add(10 * time.Second)

// schemes are the combinations that make sense.
var schemes = []plan.Input{
	{Order: policy.FIFO{}, Rule: plan.One{}, Preemption: &plan.Preemption{Never: true}},
	{Order: policy.FIFO{}, Rule: plan.P3{}},
	{Order: policy.FIFO{}, Rule: plan.Adaptive{}, Preemption: &plan.Preemption{Never: true}},
	{Order: policy.EDF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption()},
	{Order: policy.EDF{Now: now}, Rule: plan.Adaptive{}, Preemption: plan.DefaultPreemption()},
	{Order: policy.EDF{Now: now}, Rule: plan.P3{}, Preemption: plan.DefaultPreemption()},
	{Order: policy.LLF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption()},
	{Order: policy.LLF{Now: now}, Rule: plan.Adaptive{}, Preemption: plan.DefaultPreemption()},
	{Order: policy.EDF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption()},
	{Order: policy.LLF{Now: now}, Rule: plan.Adaptive{}, Preemption: plan.DefaultPreemption()},
}

// drawInput makes any situation at all, reasonable or not.
func drawInput(t *rapid.T, maxGPUs int) plan.Input {
	in := rapid.SampledFrom(schemes).Draw(t, "scheme")
	in.Now = now
	names := make([]string, 0, maxGPUs)
	for i := range rapid.IntRange(1, maxGPUs).Draw(t, "gpus") {
		names = append(names, fmt.Sprintf("g%d", i))
	}
	n := rapid.IntRange(0, 7).Draw(t, "containers")
	for i := range n {
		in.Containers = append(in.Containers, drawContainer(t, i, names))
	}
	in.Beside = map[string]string{}
	for _, c := range in.Containers {
		if rapid.IntRange(0, 7).Draw(t, "beside") == 0 {
			in.Beside[c.ID] = "beside"
		}
	}
	for _, g := range names {
		in.GPUs = append(in.GPUs, plan.GPU{
			UUID:        g,
			Utilization: rapid.SampledFrom([]float64{0, 0.5, 0.99, 1}).Draw(t, "utilisation"),
			Memory:      rapid.SampledFrom([]float64{0.1, 0.91, 0.94, 0.97}).Draw(t, "memory"),
			Fresh:       rapid.Bool().Draw(t, "fresh"),
			Arbitrated:  rapid.Bool().Draw(t, "arbitrated"),
			Greedy:      rapid.Bool().Draw(t, "greedy"),
			Relieve:     rapid.Bool().Draw(t, "relieve"),
			Admitted:    rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"c0", "c1", "c2", "c3", "gone"}), 0, 3, rapid.ID[string]).Draw(t, "admitted"),
		})
	}
	return in
}

func drawContainer(t *rapid.T, i int, gpus []string) plan.Container {
	c := plan.Container{
		ID: fmt.Sprintf("c%d", i), Name: fmt.Sprintf("n%d", i),
		Managed:  rapid.IntRange(0, 5).Draw(t, "managed") > 0,
		Never:    rapid.IntRange(0, 7).Draw(t, "never") == 0,
		Standing: rapid.SampledFrom([]plan.Standing{plan.Runs, plan.Runs, plan.Ours, plan.Ours, plan.Somebody}).Draw(t, "standing"),
	}
	if c.Standing == plan.Ours {
		c.Cause = rapid.SampledFrom([]plan.Cause{plan.Arbitrate, plan.Arbitrate, plan.Relieve, plan.Asked}).Draw(t, "cause")
	}
	if rapid.IntRange(0, 7).Draw(t, "exempt") == 0 {
		c.Exempt = "exempt"
	}
	if rapid.IntRange(0, 7).Draw(t, "asked") == 0 {
		c.Asked = "asked"
	}
	for j := range rapid.IntRange(0, 2).Draw(t, "tasks") {
		on := rapid.SliceOfNDistinct(rapid.SampledFrom(gpus), 1, -1, rapid.ID[string]).Draw(t, "on")
		c.Tasks = append(c.Tasks, task.Task{
			ID: fmt.Sprintf("t%d.%d", i, j), PID: rapid.IntRange(1, 9).Draw(t, "pid"), GPUs: on, State: task.Running,
			Start: task.Mark{Time: epoch.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "start")) * time.Second)},
		})
	}
	drawUrgency(t, &c, gpus)
	return c
}

// drawUrgency adds what orders, sharing and preemption depend on.
func drawUrgency(t *rapid.T, c *plan.Container, gpus []string) {
	c.Batch = rapid.IntRange(0, 5).Draw(t, "batch") == 0
	c.Server = !c.Batch && rapid.IntRange(0, 5).Draw(t, "server") == 0
	c.NoMemory = rapid.IntRange(0, 7).Draw(t, "no memory") == 0
	c.Since = now.Add(-rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute}).Draw(t, "since"))
	if rapid.IntRange(0, 7).Draw(t, "expedite") == 0 {
		c.Expedite = "expedite"
	}
	c.Demand, c.Mean, c.Estimates = map[string]float64{}, map[string]float64{}, map[string]plan.Estimate{}
	for _, g := range gpus {
		if rapid.Bool().Draw(t, "demand known") {
			c.Demand[g] = rapid.SampledFrom([]float64{0.1, 0.4, 0.6, 1}).Draw(t, "demand")
			c.Mean[g] = c.Demand[g] * rapid.SampledFrom([]float64{0.3, 1}).Draw(t, "mean")
		}
	}
	for i := range c.Tasks {
		if rapid.Bool().Draw(t, "has deadline") {
			if rapid.Bool().Draw(t, "has stood still") {
				c.Tasks[i].PausedSeconds = task.Seconds(rapid.IntRange(0, 9).Draw(t, "stood still"))
			}
			c.Tasks[i].Deadline = epoch.Add(time.Duration(rapid.IntRange(5, 20).Draw(t, "deadline")) * time.Second)
		}
		if rapid.Bool().Draw(t, "has history") {
			left := rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second}).Draw(t, "remaining")
			c.Estimates[c.Tasks[i].ID] = plan.Estimate{Remaining: left, Least: rapid.SampledFrom([]time.Duration{0, left / 2, left}).Draw(t, "least"), Total: 2 * left}
		}
	}
}

// strict turns the situation into one for the baselines: by start, at once.
func strict(in *plan.Input, rule plan.Rule) {
	in.Order, in.Rule, in.Preemption, in.Beside = policy.FIFO{}, rule, nil, nil
	for i := range in.Containers {
		in.Containers[i].Server, in.Containers[i].NoMemory = false, false
	}
}

// apply carries a plan out, checking every action's preconditions, and returns
// what is true afterwards, before the GPUs are sampled anew.
func apply(t *rapid.T, in plan.Input, p plan.Plan) plan.Input {
	out := in
	out.GPUs = slices.Clone(in.GPUs)
	out.Containers = slices.Clone(in.Containers)
	for _, a := range p.Actions {
		i := slices.IndexFunc(out.Containers, func(c plan.Container) bool { return c.ID == a.ContainerID })
		c := &out.Containers[i]
		if c.Standing != a.Standing || a.Reason == "" {
			t.Fatalf("precondition or reason of %+v does not fit %+v", a, *c)
		}
		switch {
		case a.Kind == plan.Pause && c.Standing == plan.Runs && c.Controllable():
			c.Standing, c.Cause, c.Since = plan.Ours, a.Cause, in.Now
		case a.Kind == plan.Unpause && c.Standing == plan.Ours:
			c.Standing, c.Cause, c.Since = plan.Runs, "", in.Now
		case a.Kind == plan.SwapOut && c.Controllable() && c.Memory.Can && !c.Memory.Out:
			c.Standing, c.Cause, c.Since = plan.Ours, a.Cause, in.Now
			needs := maps.Clone(c.Memory.Held)
			for g, n := range c.Memory.Needs {
				needs[g] = max(needs[g], n)
			}
			c.Memory.Out, c.Memory.Needs, c.Memory.Held, c.Memory.Since, c.Memory.Evict = true, needs, nil, in.Now, ""
		case a.Kind == plan.SwapIn && c.Memory.Out:
			c.Standing, c.Cause, c.Since = plan.Runs, "", in.Now
			c.Memory.Out, c.Memory.Held, c.Memory.Since = false, c.Memory.Needs, in.Now
		default:
			t.Fatalf("not allowed: %+v on %+v", a, *c)
		}
	}
	for i := range out.GPUs {
		out.GPUs[i].Fresh = false
		for _, id := range p.Admitted[out.GPUs[i].UUID] {
			if j := slices.IndexFunc(out.Containers, func(c plan.Container) bool { return c.ID == id }); !slices.Contains(in.GPUs[i].Admitted, id) {
				out.Containers[j].Since = in.Now
			}
		}
		out.GPUs[i].Admitted = p.Admitted[out.GPUs[i].UUID]
	}
	return out
}

func on(c plan.Container, gpu string) bool {
	return slices.ContainsFunc(c.Tasks, func(t task.Task) bool { return slices.Contains(t.GPUs, gpu) })
}

// contenders are those that take part in arbitration, in order.
func contenders(in plan.Input) []plan.Container {
	var out []plan.Container
	for _, c := range in.Containers {
		if c.Controllable() && len(c.Tasks) > 0 && c.Asked == "" && !c.NoMemory {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b plan.Container) int {
		return in.Order.Compare(a.Job(in.Order), b.Job(in.Order))
	})
	return out
}
