package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// box is a container with one task on GPU g: its deadline from now and what
// history says that it still needs, seconds; 0 is none, and not known.
func box(id string, deadline, needs float64, change ...func(*plan.Container)) plan.Container {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	t := task.Task{ID: "t" + id, PID: 1, GPUs: []string{"g"}, State: task.Running, Start: task.Mark{Time: epoch}}
	if deadline != 0 {
		t.Deadline = now.Add(seconds(deadline))
	}
	c := plan.Container{ID: id, Name: id, Managed: true, Standing: plan.Ours, Cause: plan.Arbitrate, Since: now.Add(-time.Minute), Tasks: []task.Task{t}}
	if needs != 0 {
		c.Estimates = map[string]plan.Estimate{t.ID: {Remaining: seconds(needs), Least: seconds(needs), Total: seconds(needs)}}
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func runs(c *plan.Container)  { c.Standing, c.Cause = plan.Runs, "" }
func batch(c *plan.Container) { c.Batch = true }
func just(c *plan.Container) {
	c.Standing, c.Cause, c.Since = plan.Runs, "", now.Add(-100*time.Millisecond)
}
func expedite(c *plan.Container) { c.Expedite = "asked" }

func TestPreemption(t *testing.T) {
	for _, tt := range []struct {
		name       string
		admitted   string
		containers []plan.Container
		running    string // may compute after the plan
	}{
		{"the running one keeps its turn while the earlier deadline can wait", "a",
			[]plan.Container{box("a", 20, 2, runs), box("b", 10, 1)}, "a"},
		{"it is stopped when the earlier one would miss", "a",
			[]plan.Container{box("a", 20, 5, runs), box("b", 3, 1)}, "b"},
		{"not if that one misses all the same", "a",
			[]plan.Container{box("a", 20, 5, runs), box("b", 3, 4)}, "a"},
		{"not if that only moves the miss", "a",
			[]plan.Container{box("a", 4, 3.5, runs), box("b", 3, 1)}, "a"},
		{"not for a later deadline", "a",
			[]plan.Container{box("a", 2, 1.9, runs), box("b", 3, 2.9)}, "a"},
		{"not within its quantum", "a",
			[]plan.Container{box("a", 20, 5, just), box("b", 3, 1)}, "a"},
		{"a batch task is stopped for a deadline at once", "a",
			[]plan.Container{box("a", 0, 0, just), box("b", 3, 1)}, "b"},
		{"also where the deadline could wait", "a",
			[]plan.Container{box("a", 0, 2, runs), box("b", 300, 1)}, "b"},
		{"also where it cannot be met any more", "a",
			[]plan.Container{box("a", 0, 0, runs), box("b", -1, 1)}, "b"},
		{"class batch is batch, whatever its deadline", "a",
			[]plan.Container{box("a", 2, 1, runs, batch), box("b", 9, 1)}, "b"},
		{"among batch whoever runs keeps its turn", "b",
			[]plan.Container{box("a", 0, 0), box("b", 0, 0, runs)}, "b"},
		{"batch stops nobody", "a",
			[]plan.Container{box("a", 9, 5, runs), box("b", 0, 0)}, "a"},
		{"where nothing is known the earlier deadline goes first", "a",
			[]plan.Container{box("a", 20, 0, runs), box("b", 3, 0)}, "b"},
		{"of those that wait the earliest goes", "a",
			[]plan.Container{box("a", 20, 5, runs), box("b", 3, 1), box("c", 2, 1)}, "c"},
		{"expedited: to the front, and worth a stop", "a",
			[]plan.Container{box("a", 4, 2, runs), box("b", 6, 5, expedite), box("c", 5, 1)}, "a"},
		{"expedited: worth it where the other has time", "a",
			[]plan.Container{box("a", 20, 5, runs), box("b", 6, 5, expedite), box("c", 5, 1)}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := plan.Input{
				Now: now, Order: policy.EDF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption(), Containers: tt.containers,
				GPUs: []plan.GPU{{UUID: "g", Arbitrated: true, Utilization: 1, Admitted: strings.Fields(tt.admitted)}},
			}
			p := plan.Make(in)
			if got := strings.Join(p.Admitted["g"], " "); got != tt.running {
				t.Errorf("admitted %q, want %q: %+v", got, tt.running, p)
			}
			if len(p.Admitted["g"])+len(p.Queue["g"]) != len(tt.containers) {
				t.Errorf("in the queue: %v", p.Queue)
			}
			if moved := tt.admitted != "" && tt.running != tt.admitted; moved != (p.Preempted != "") {
				t.Errorf("preempted %q", p.Preempted)
			}
		})
	}
}

func TestAPreemptionSaysWhy(t *testing.T) {
	p := plan.Make(plan.Input{
		Now: now, Order: policy.EDF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption(),
		Containers: []plan.Container{box("a", 20, 5, runs), box("b", 3, 1)},
		GPUs:       []plan.GPU{{UUID: "g", Arbitrated: true, Admitted: []string{"a"}}},
	})
	i := slices.IndexFunc(p.Actions, func(a plan.Action) bool { return a.Kind == plan.Pause })
	if want := "waits for b on g: it has 3.00 s to its deadline and would miss it"; i < 0 || p.Actions[i].Reason != want {
		t.Errorf("%+v", p.Actions)
	}
}

func TestALateTaskIsToldWhyItWaits(t *testing.T) {
	p := plan.Make(plan.Input{
		Now: now, Order: policy.LateLast{Placer: policy.EDF{Now: now}, Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption(),
		Containers: []plan.Container{box("a", 20, 5, runs), box("missed", -1, 1), box("c", 0, 1)},
		GPUs:       []plan.GPU{{UUID: "g", Arbitrated: true, Admitted: []string{"a"}}},
	})
	for id, want := range map[string]string{
		"missed": "waits for a on g: its own deadline cannot be met any more, and those that can meet theirs come first",
		"c":      "waits for a on g: tasks with deadlines come before those without, and before class batch",
	} {
		if got := p.Waits[id].Reason; got != want {
			t.Errorf("%s %q, want %q", id, got, want)
		}
	}
}

// Requests are neither held for others, nor are others for them; what held them before
// is over.
func TestRequestsRunBesideAllOthers(t *testing.T) {
	server := func(c *plan.Container) { c.Server = true }
	for _, s := range schemes {
		s.Now, s.GPUs = now, []plan.GPU{{UUID: "g", Arbitrated: true, Utilization: 1, Fresh: true, Admitted: []string{"a"}}}
		s.Containers = []plan.Container{box("a", 20, 5, runs), box("server", -1, 1, server), box("b", 0, 0, runs, server), box("c", 9, 1)}
		p := plan.Make(s)
		for _, id := range []string{"server", "b"} {
			if w, waits := p.Waits[id]; waits {
				t.Errorf("%s of %T %T: %v", id, s.Order, s.Rule, w)
			}
		}
		i := slices.IndexFunc(p.Actions, func(a plan.Action) bool { return a.ContainerID == "server" })
		if i < 0 || p.Actions[i].Kind != plan.Unpause || p.Actions[i].Reason != "requests are not held for others" {
			t.Errorf("%T: %+v", s.Order, p.Actions)
		}
		if may := p.May()["g"]; slices.Contains(may, "server") || !slices.Contains(may, "a") {
			t.Errorf("%T: turns: %v", s.Order, may)
		}
	}
}

// Whoever is released has the earliest deadline of those that wait for the GPU and
// could use it: EDF never inverts two deadlines.
func TestEDFNeverInverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1)
		in.Order, in.Rule, in.Preemption = policy.EDF{Now: now}, plan.One{}, plan.DefaultPreemption()
		in.GPUs[0].Arbitrated, in.GPUs[0].Relieve, in.Beside = true, false, nil
		p := plan.Make(in)
		for _, a := range p.Actions {
			if c := find(in, a.ContainerID); c.Server || c.NoMemory {
				continue
			}
			if a.Kind != plan.Unpause {
				continue
			}
			for _, id := range p.Queue["g0"] {
				got, waits := find(in, a.ContainerID), find(in, id)
				if !got.Controllable() || len(got.Tasks) == 0 {
					continue
				}
				if in.Order.Compare(waits.Job(in.Order), got.Job(in.Order)) < 0 {
					t.Fatalf("%s goes before %s", got.ID, waits.ID)
				}
			}
		}
	})
}

func find(in plan.Input, id string) plan.Container {
	return in.Containers[slices.IndexFunc(in.Containers, func(c plan.Container) bool { return c.ID == id })]
}
