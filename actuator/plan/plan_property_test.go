package plan_test

import (
	"fmt"
	"slices"
	"testing"
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
	for _, g := range names {
		in.GPUs = append(in.GPUs, plan.GPU{
			UUID:        g,
			Utilization: rapid.SampledFrom([]float64{0, 0.5, 0.99, 1}).Draw(t, "utilisation"),
			Memory:      rapid.SampledFrom([]float64{0.1, 0.91, 0.94, 0.97}).Draw(t, "memory"),
			Fresh:       rapid.Bool().Draw(t, "fresh"),
			Arbitrated:  rapid.Bool().Draw(t, "arbitrated"),
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
	c.Since = now.Add(-rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute}).Draw(t, "since"))
	c.Phase = rapid.SampledFrom([]plan.Phase{plan.Unknown, plan.Unknown, plan.Preparing, plan.Waiting, plan.Computing, plan.Finishing}).Draw(t, "phase")
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
			c.Tasks[i].Deadline = epoch.Add(time.Duration(rapid.IntRange(5, 20).Draw(t, "deadline")) * time.Second)
		}
		if rapid.Bool().Draw(t, "has history") {
			left := rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second}).Draw(t, "remaining")
			c.Estimates[c.Tasks[i].ID] = plan.Estimate{Remaining: left, Total: 2 * left}
		}
	}
}

// strict turns the situation into one for the baselines: by start, at once,
// without a launch gate.
func strict(in *plan.Input, rule plan.Rule) {
	in.Order, in.Rule, in.Preemption = policy.FIFO{}, rule, nil
	for i := range in.Containers {
		in.Containers[i].Phase = plan.Unknown
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
		if c.Controllable() && len(c.Tasks) > 0 && c.Asked == "" {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b plan.Container) int {
		return in.Order.Compare(a.Job(in.Order, in.Now), b.Job(in.Order, in.Now))
	})
	return out
}

func TestAPlanCarriedOutLeavesNothingToDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 3)
		after := apply(t, in, plan.Make(in))
		if again := plan.Make(after); len(again.Actions) > 0 {
			t.Fatalf("%s: again: %+v", in.Rule.Name(), again.Actions)
		}
	})
}

// On a single GPU somebody always runs, as long as somebody could.
func TestNeverAllPaused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1)
		after := apply(t, in, plan.Make(in))
		could := contenders(after)
		if len(could) > 0 && !slices.ContainsFunc(could, func(c plan.Container) bool { return c.Standing == plan.Runs }) {
			t.Fatalf("%s: all are paused: %+v", in.Rule.Name(), could)
		}
	})
}

// On several GPUs nobody waits in a circle: without memory pressure somebody
// runs, and a GPU stands idle only if each that waits for it waits for
// another GPU too.
func TestNoDeadlockOnSeveralGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 3)
		for i := range in.GPUs {
			in.GPUs[i].Relieve = false
		}
		for i := range in.Containers { // whoever is about to launch may keep a GPU idle
			if in.Containers[i].Phase == plan.Preparing {
				in.Containers[i].Phase = plan.Computing
			}
		}
		after := apply(t, in, plan.Make(in))
		could := contenders(after)
		if len(could) > 0 && !slices.ContainsFunc(could, func(c plan.Container) bool { return c.Standing == plan.Runs }) {
			t.Fatalf("%s: all wait: %+v", in.Rule.Name(), could)
		}
		for _, g := range in.GPUs {
			runs, onlyHere := false, false
			for _, c := range could {
				elsewhere := slices.ContainsFunc(in.GPUs, func(o plan.GPU) bool { return o.UUID != g.UUID && o.Arbitrated && on(c, o.UUID) })
				runs = runs || (on(c, g.UUID) && c.Standing == plan.Runs)
				onlyHere = onlyHere || (on(c, g.UUID) && !elsewhere)
			}
			if onlyHere && !runs {
				t.Fatalf("%s: nobody runs on %s: %+v", in.Rule.Name(), g.UUID, could)
			}
		}
	})
}

func TestFIFOIsNeverInverted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 3)
		strict(&in, plan.One{})
		for i := range in.GPUs {
			in.GPUs[i].Relieve = false
		}
		after := apply(t, in, plan.Make(in))
		could := contenders(after)
		for _, g := range in.GPUs {
			if !g.Arbitrated {
				continue
			}
			running := 0
			waits := "" // an earlier one that waits for this GPU alone
			for _, c := range could {
				if !on(c, g.UUID) {
					continue
				}
				elsewhere := slices.ContainsFunc(in.GPUs, func(o plan.GPU) bool { return o.UUID != g.UUID && o.Arbitrated && on(c, o.UUID) })
				switch {
				case c.Standing == plan.Runs && waits != "":
					t.Fatalf("%s runs before %s on %s", c.ID, waits, g.UUID)
				case c.Standing == plan.Runs:
					running++
				case !elsewhere:
					waits = c.ID
				}
			}
			if running > 1 {
				t.Fatalf("%d run at once on %s: %+v", running, g.UUID, could)
			}
		}
	})
}

func TestP3AtFullUseOnlyTheFirstRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1)
		strict(&in, plan.P3{})
		in.GPUs[0].Utilization, in.GPUs[0].Arbitrated, in.GPUs[0].Relieve = 1, true, false
		after := apply(t, in, plan.Make(in))
		for i, c := range contenders(after) {
			if (c.Standing == plan.Runs) != (i == 0) {
				t.Fatalf("%d: %+v", i, c)
			}
		}
	})
}

func TestP3LetsGoOneAfterAnotherInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1)
		strict(&in, plan.P3{})
		in.GPUs[0].Arbitrated, in.GPUs[0].Relieve = true, false
		p := plan.Make(in)
		could := contenders(in)
		let := 0
		for _, a := range p.Actions {
			i := slices.IndexFunc(could, func(c plan.Container) bool { return c.ID == a.ContainerID })
			if i < 0 || a.Kind != plan.Unpause || slices.Contains(in.GPUs[0].Admitted, a.ContainerID) {
				continue
			}
			let++
			if i > 0 && (!in.GPUs[0].Fresh || in.GPUs[0].Memory > 0.95) {
				t.Fatalf("let go without a fresh sample, or with the memory full: %+v", a)
			}
			after := apply(t, in, p)
			for _, earlier := range contenders(after)[:i] {
				if earlier.Standing != plan.Runs {
					t.Fatalf("%s was let go before %s", a.ContainerID, earlier.ID)
				}
			}
		}
		if let > 1 {
			t.Fatalf("%d at once: %+v", let, p.Actions)
		}
	})
}

// Whoever ends, the next one runs: tasks end one by one, and all get their turn.
func TestEverybodyGetsATurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 2)
		for i := range in.GPUs {
			in.GPUs[i].Relieve = false
		}
		for left := len(contenders(in)); left > 0; left-- {
			in = apply(t, in, plan.Make(in))
			could := contenders(in)
			i := slices.IndexFunc(could, func(c plan.Container) bool { return c.Standing == plan.Runs })
			if i < 0 {
				t.Fatalf("nobody runs: %+v", could)
			}
			j := slices.IndexFunc(in.Containers, func(c plan.Container) bool { return c.ID == could[i].ID })
			in.Containers[j].Tasks = nil
		}
	})
}

func TestThePressureIsRelievedOneByOneDownToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1)
		in.GPUs[0].Arbitrated, in.GPUs[0].Relieve, in.GPUs[0].Memory = false, true, 0.97
		for i := range in.Containers {
			in.Containers[i].Asked = ""
		}
		for range in.Containers {
			in.GPUs[0].Fresh = true
			p := plan.Make(in)
			pauses := 0
			for _, a := range p.Actions {
				if a.Kind == plan.Pause {
					pauses++
				}
			}
			if pauses > 1 {
				t.Fatalf("more than one at a time: %+v", p.Actions)
			}
			in = apply(t, in, p)
		}
		running := 0
		for _, c := range contenders(in) {
			if c.Standing == plan.Runs {
				running++
			}
		}
		if len(contenders(in)) > 0 && running != 1 {
			t.Fatalf("%d run in the end: %+v", running, contenders(in))
		}
		in.GPUs[0].Memory = 0.89
		in = apply(t, in, plan.Make(in))
		for _, c := range contenders(in) {
			if c.Standing != plan.Runs {
				t.Fatalf("still held at 89 %%: %+v", c)
			}
		}
	})
}
