package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
)

// Beside greedy containers that are not ours only those that come last are held, for tasks in time.
func TestBesideGreedyContainers(t *testing.T) {
	places := policy.Order(policy.LateLast{Placer: policy.EDF{Now: now}, Now: now})
	for _, tt := range []struct {
		name       string
		order      policy.Order
		rule       plan.Rule
		memory     float64
		admitted   string
		containers []plan.Container
		waits      string
	}{
		{"tasks in time share it", places, plan.One{}, 0, "a", []plan.Container{box("a", 50, 0, runs), box("b", 99, 0)}, ""},
		{"late ones as well", places, plan.One{}, 0, "a", []plan.Container{box("a", 50, 0, runs), box("b", -1, 0)}, ""},
		{"batch waits for them", places, plan.One{}, 0, "a", []plan.Container{box("a", 50, 0, runs), box("b", 0, 0, batch), box("c", 0, 0)}, "b c"},
		{"not for late ones", places, plan.One{}, 0, "a", []plan.Container{box("a", -1, 0, runs), box("b", 0, 0, batch)}, ""},
		{"nor for batch", places, plan.One{}, 0, "a", []plan.Container{box("a", 0, 0, runs, batch), box("b", 0, 0, batch)}, ""},
		{"nor for batch beside a task that takes no turn", places, plan.Adaptive{}, 0, "b c",
			[]plan.Container{box("a", 50, 0, runs, wants(1), mean(.2)), box("b", 0, 0, runs, batch, wants(1)), box("c", 0, 0, runs, batch, wants(1))}, ""},
		{"batch runs where the rule lets it", places, plan.Adaptive{}, 0, "a", []plan.Container{box("a", 50, 0, runs, wants(.4)), box("b", 0, 0, batch, wants(.4))}, ""},
		{"who has not begun waits while memory is full", places, plan.One{}, 0.97, "a c", []plan.Container{box("a", 50, 0, runs), box("b", 99, 0), box("c", 98, 0, runs)}, "b"},
		{"an order of starts stays", policy.FIFO{}, plan.One{}, 0, "a", []plan.Container{box("a", 50, 0, runs), box("b", 99, 0)}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.containers {
				tt.containers[i].Tasks[0].Start.Time = epoch.Add(time.Duration(i))
			}
			p := plan.Make(plan.Input{Now: now, Order: tt.order, Rule: tt.rule, Preemption: plan.DefaultPreemption(), Containers: tt.containers,
				GPUs: []plan.GPU{{UUID: "g", Arbitrated: true, Utilization: 1, Memory: tt.memory, Fresh: true, Greedy: true, Admitted: strings.Fields(tt.admitted)}}})
			if got := strings.Join(slices.Sorted(maps.Keys(p.Waits)), " "); got != tt.waits {
				t.Errorf("%q wait, want %q: %+v", got, tt.waits, p.Waits)
			}
		})
	}
}

// What late tasks had meanwhile is no debt of theirs: they get their floor as soon as an order is kept again.
func TestBesideGreedyContainersTheFloorMakesNoDebts(t *testing.T) {
	f, beside := plan.Floor{}, 0
	for tenth := range 800 {
		greedy := tenth < 600
		late := box("late", -1, 0, begun)
		if greedy {
			runs(&late)
		}
		granted := f.Grant(plan.Input{Now: now.Add(time.Duration(tenth) * 100 * time.Millisecond), Rule: plan.One{}, Preemption: plan.DefaultPreemption(),
			Containers: []plan.Container{box("a", 999, 0, runs), late}, Order: policy.LateLast{Placer: policy.EDF{Now: now}, Now: now},
			GPUs: []plan.GPU{{UUID: "g", Arbitrated: true, Greedy: greedy}}})
		if granted["late"] != "" && !greedy {
			beside++
		}
	}
	if beside == 0 {
		t.Error("it gets nothing for 20 s")
	}
}
