package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// begins is on its way to its first launch, since the seconds given.
func begins(since float64) func(*plan.Container) {
	return func(c *plan.Container) {
		c.Standing, c.Cause, c.Phase = plan.Runs, "", plan.Preparing
		c.Tasks[0].Start.Time = now.Add(-time.Duration(since * float64(time.Second)))
	}
}

// coming has called cuInit, and is no task yet.
func coming(relative time.Duration) func(*plan.Container) {
	return func(c *plan.Container) {
		c.Standing, c.Cause, c.Phase, c.Tasks, c.Relative = plan.Runs, "", plan.Preparing, nil, relative
	}
}

func startup(left, crowded float64) func(*plan.Container) {
	return func(c *plan.Container) {
		e := c.Estimates[c.Tasks[0].ID]
		e.Startup, e.Crowded = time.Duration(left*float64(time.Second)), time.Duration(crowded*float64(time.Second))
		c.Estimates[c.Tasks[0].ID] = e
	}
}

func TestStartups(t *testing.T) {
	first := func(change ...func(*plan.Container)) plan.Container { // 0.25 s to spare: too little for one neighbour
		return box("a", 5, 4.75, append([]func(*plan.Container){begins(0)}, change...)...)
	}
	for _, tt := range []struct {
		name  string
		boxes []plan.Container
		back  string
	}{
		{"a later deadline waits until the earlier one has started up", []plan.Container{first(), box("b", 20, 5, begins(0))}, "b"},
		{"so does one without", []plan.Container{first(), box("b", 0, 0, begins(0))}, "b"},
		{"and one whose task is still to come", []plan.Container{first(), box("b", 0, 0, coming(20*time.Second)), box("c", 0, 0, coming(0))}, "b c"},
		{"not one whose task will have an earlier deadline", []plan.Container{first(), box("b", 0, 0, coming(3*time.Second))}, ""},
		{"not while there is time enough", []plan.Container{box("a", 8, 4.75, begins(0)), box("b", 20, 5, begins(0))}, ""},
		{"there is not with enough others", []plan.Container{box("a", 5.8, 4.75, begins(0)), box("b", 20, 5, begins(0)), box("c", 20, 5, begins(0)),
			box("d", 20, 5, begins(0)), box("e", 20, 5, begins(0)), box("f", 20, 5, begins(0))}, "b c d e f"},
		{"nor where starting beside others was measured to be slow", []plan.Container{box("a", 7, 4.75, begins(0), startup(1, 3)), box("b", 20, 5, begins(0))}, "b"},
		{"nobody waits for one that is too late", []plan.Container{box("a", 3, 4.75, begins(0)), box("b", 20, 5, begins(0))}, ""},
		{"nor for one without a deadline", []plan.Container{box("a", 0, 0, begins(0)), box("b", 0, 0, begins(0))}, ""},
		{"nor for one that has launched", []plan.Container{first(func(c *plan.Container) { c.Phase = plan.Waiting }), box("b", 20, 5, begins(0))}, ""},
		{"who copies its result out is not disturbed either", []plan.Container{first(phase(plan.Finishing)), box("b", 20, 5, begins(0))}, "b"},
		{"where there is time enough it is", []plan.Container{box("a", 8, 4.75, begins(0), phase(plan.Finishing)), box("b", 20, 5, begins(0))}, ""},
		{"nor who is nearly through, by one whose start-up lasts until then", []plan.Container{first(phase(plan.Computing)), box("b", 20, 5, begins(0), startup(4, 0)), box("c", 20, 5, begins(0), startup(3, 0))}, "b"},
		{"one that has long to go yet is not waited for", []plan.Container{box("a", 6, 5.9, begins(0), phase(plan.Finishing)), box("b", 20, 5, begins(0))}, ""},
		{"nor one of which nothing is known", []plan.Container{box("a", 5, 0, begins(0), phase(plan.Finishing)), box("b", 20, 5, begins(0))}, ""},
		{"nobody waits for an end who would miss for it", []plan.Container{first(phase(plan.Finishing)), box("b", 9, 5, begins(0))}, ""},
		{"nor for one that takes too long to start", []plan.Container{first(startup(6, 0)), box("b", 20, 5, begins(0))}, ""},
		{"nor for long", []plan.Container{first(begins(5.1)), box("b", 20, 5, begins(0))}, ""},
		{"time at a standstill is not its start-up", []plan.Container{first(begins(6), func(c *plan.Container) { c.Tasks[0].HeldSeconds = 5 }), box("b", 20, 5, begins(0))}, "b"},
		{"nor for one that somebody holds", []plan.Container{first(func(c *plan.Container) { c.Asked = "asked" }), box("b", 20, 5, begins(0))}, ""},
		{"nobody waits who would miss for it", []plan.Container{first(), box("b", 6, 5, begins(0)), box("c", 9, 5, begins(0))}, "c"},
		{"who would miss in any case, by a high estimate only, counts as a stranger", []plan.Container{first(), box("b", 6, 30, begins(0), atLeast(1)), box("c", 9, 30, begins(0), atLeast(1))}, "c"},
		{"of strangers nobody waits whose deadline is about the same", []plan.Container{box("a", 5, 0, begins(0)), box("b", 5.1, 0, begins(0)), box("c", 5.2, 0, begins(0))}, ""},
		{"of strangers one waits whose deadline is much later", []plan.Container{box("a", 4, 0, begins(0)), box("b", 9, 0, begins(0)), box("c", 13, 0, begins(0))}, "b c"},
		{"nobody waits for ever", []plan.Container{first(), box("b", 20, 5, begins(40), func(c *plan.Container) { c.Tasks[0].PausedSeconds = 35 })}, ""},
		{"nobody is held in place of one that is not to be", []plan.Container{first(), box("b", 20, 5, begins(0), func(c *plan.Container) { c.Never = true })}, ""},
		{"who computes goes on", []plan.Container{first(), box("b", 20, 5, runs, phase(plan.Computing))}, ""},
		{"on another GPU that is not arbitrated it goes on", []plan.Container{first(), box("b", 20, 5, begins(0), func(c *plan.Container) { c.Tasks[0].GPUs = []string{"h"} })}, ""},
		{"where its GPU is not known yet it waits", []plan.Container{first(), box("b", 20, 5, begins(0), func(c *plan.Container) { c.Tasks[0].GPUs = []string{task.UnknownGPU} })}, "b"},
	} {
		for _, order := range []policy.Order{policy.LateLast{Placer: policy.EDF{Now: now}, Now: now}, policy.LateLast{Placer: policy.LLF{Now: now}, Now: now}} {
			in := plan.Input{Now: now, Order: order, Rule: plan.One{}, Preemption: plan.DefaultPreemption(), Startup: plan.DefaultStartup(),
				GPUs: []plan.GPU{{UUID: "g", Arbitrated: true}}, Containers: tt.boxes}
			p := plan.Make(in)
			if got := strings.Join(slices.Sorted(maps.Keys(p.Back)), " "); got != tt.back {
				t.Errorf("%s (%T): %q are kept back, want %q", tt.name, order, got, tt.back)
			}
			for _, a := range p.Actions {
				if a.Kind == plan.Pause && a.Cause == plan.Start && p.Back[a.ContainerID] == "" {
					t.Errorf("%s: %+v", tt.name, a)
				}
			}
		}
	}
}

// Who is held stays so while the estimates change a little.
func TestStartupsDoNotFlutter(t *testing.T) {
	held := func(c *plan.Container) { c.Standing, c.Cause = plan.Ours, plan.Start }
	for _, tt := range []struct {
		slack float64
		free  string
		held  string
	}{{0.2, "b", "b"}, {0.6, "", "b"}, {1, "", ""}} {
		for i, change := range [][]func(*plan.Container){{begins(1)}, {begins(1), held}} {
			want := []string{tt.free, tt.held}[i]
			in := plan.Input{Now: now, Order: policy.EDF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption(), Startup: plan.DefaultStartup(),
				GPUs: []plan.GPU{{UUID: "g", Arbitrated: true}}, Containers: []plan.Container{box("a", 4+tt.slack, 4, begins(1)), box("b", 20, 5, change...)}}
			if got := strings.Join(slices.Collect(maps.Keys(plan.Make(in).Back)), " "); got != want {
				t.Errorf("%v s to spare, held %v: %q are kept back, want %q", tt.slack, i > 0, got, want)
			}
		}
	}
}

// Who was kept back goes on up to its launch when the other has got to its own.
func TestStartupsGoOn(t *testing.T) {
	kept := box("b", 20, 5, begins(1), func(c *plan.Container) { c.Standing, c.Cause = plan.Ours, plan.Start })
	in := plan.Input{Now: now, Order: policy.EDF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption(), Startup: plan.DefaultStartup(),
		GPUs: []plan.GPU{{UUID: "g", Arbitrated: true}}, Containers: []plan.Container{box("a", 5, 4.75, begins(1)), kept}}
	if p := plan.Make(in); len(p.Actions) > 0 || p.Back["b"] == "" || !slices.Equal(p.Line["g"], []string{"b"}) {
		t.Fatalf("%+v", p)
	}
	in.Containers[0].Phase = plan.Computing
	p := plan.Make(in)
	if len(p.Actions) != 1 || p.Actions[0].ContainerID != "b" || p.Actions[0].Kind != plan.Unpause || !p.Actions[0].ToLaunch || len(p.Back) > 0 {
		t.Fatalf("%+v", p)
	}
}

// Whoever is kept back has a reason to be: somebody with an earlier deadline, which
// is not kept back itself, is on its way to its launch or to its end. Nobody is where there
// are no deadlines.
func TestStartupsAreKeptBackForOneInHaste(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 2)
		p := plan.Make(in)
		if in.Startup == nil && len(p.Back) > 0 {
			t.Fatal(p.Back)
		}
		for id := range p.Back {
			w := in.Containers[slices.IndexFunc(in.Containers, func(c plan.Container) bool { return c.ID == id })]
			if w.Phase != plan.Preparing || !w.Controllable() {
				t.Fatalf("kept back: %+v", w)
			}
			if !slices.ContainsFunc(in.Containers, func(c plan.Container) bool {
				if len(c.Tasks) == 0 || p.Back[c.ID] != "" || p.Waits[c.ID].Cause != "" && p.Waits[c.ID].Cause != plan.Arbitrate {
					return false
				}
				j := c.Job(in.Order)
				return slices.Contains([]plan.Phase{plan.Preparing, plan.Computing, plan.Finishing}, c.Phase) && j.Urgent() && now.Before(j.Deadline) && (len(w.Tasks) == 0 || !w.Job(in.Order).Urgent() || j.Deadline.Before(w.Job(in.Order).Deadline))
			}) {
				t.Fatalf("%s is kept back for nobody: %s", id, p.Back[id])
			}
		}
	})
}
