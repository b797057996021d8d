package plan_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
)

func wants(share float64) func(*plan.Container) {
	return func(c *plan.Container) { c.Demand = map[string]float64{"g": share} }
}

func mean(share float64) func(*plan.Container) {
	return func(c *plan.Container) { c.Mean = map[string]float64{"g": share} }
}

func TestAdaptive(t *testing.T) {
	for _, tt := range []struct {
		name       string
		use        float64
		fresh      bool
		admitted   string
		containers []plan.Container
		running    string
	}{
		{"together they leave some idle", 1, true, "a",
			[]plan.Container{box("a", 0, 0, runs, wants(.3)), box("b", 0, 0, wants(.3)), box("c", 0, 0, wants(.3))}, "a b c"},
		{"saturating ones go one at a time, whatever the GPU says", 0.1, true, "a",
			[]plan.Container{box("a", 0, 0, runs, wants(1)), box("b", 0, 0, wants(1))}, "a"},
		{"nobody is released past one that waits", 0.3, true, "a",
			[]plan.Container{box("a", 0, 0, runs, wants(.6)), box("b", 0, 0, wants(.6)), box("c", 0, 0, wants(.3))}, "a"},
		{"except what is brief", 1, true, "a",
			[]plan.Container{box("a", 0, 0, runs, wants(1)), box("b", 0, 0, wants(.6)), box("c", 0, 0.2)}, "a c"},
		{"and what is mostly on the CPU", 1, true, "a",
			[]plan.Container{box("a", 0, 0, runs, wants(1)), box("b", 0, 0, wants(.6)), box("c", 0, 0, wants(1), mean(.4))}, "a c"},
		{"of strangers nobody is stopped before the GPU is full", 0.5, false, "",
			[]plan.Container{box("a", 0, 0, runs), box("b", 0, 0, runs), box("c", 0, 0, runs)}, "a b c"},
		{"when it is full all but the first are", 0.95, false, "a b c",
			[]plan.Container{box("a", 0, 0, runs), box("b", 0, 0, runs), box("c", 0, 0, runs)}, "a"},
		{"and stay so while it is more than half used", 0.6, true, "a",
			[]plan.Container{box("a", 0, 0, runs), box("b", 0, 0), box("c", 0, 0)}, "a"},
		{"below that one is released", 0.4, true, "a",
			[]plan.Container{box("a", 0, 0, runs), box("b", 0, 0), box("c", 0, 0)}, "a b"},
		{"not before a sample shows what the last one does", 0.4, false, "a b",
			[]plan.Container{box("a", 0, 0, runs), box("b", 0, 0, runs), box("c", 0, 0)}, "a b"},
		{"a GPU that does not say: one at a time", math.NaN(), true, "a",
			[]plan.Container{box("a", 0, 0, runs), box("b", 0, 0)}, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.containers {
				tt.containers[i].Tasks[0].Start.Time = epoch.Add(time.Duration(i))
			}
			p := plan.Make(plan.Input{
				Now: now, Order: policy.EDF{Now: now}, Rule: plan.Adaptive{}, Preemption: plan.DefaultPreemption(), Containers: tt.containers,
				GPUs: []plan.GPU{{UUID: "g", Arbitrated: true, Utilization: tt.use, Fresh: tt.fresh, Admitted: strings.Fields(tt.admitted)}},
			})
			if got := strings.Join(p.Admitted["g"], " "); got != tt.running {
				t.Errorf("admitted %q, want %q: %+v", got, tt.running, p.Waits)
			}
		})
	}
}
