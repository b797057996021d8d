package plan_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
)

// pass lets seconds pass with a plan every 100 ms, and returns how long each container
// ran beside others, by id.
func pass(f *plan.Floor, seconds float64, containers ...plan.Container) map[string]time.Duration {
	const every = 100 * time.Millisecond
	ran := map[string]time.Duration{}
	for at := time.Duration(0); at < time.Duration(seconds*float64(time.Second)); at += every {
		in := plan.Input{Now: now.Add(at), Rule: plan.One{}, Preemption: plan.DefaultPreemption(), Containers: containers,
			Order: policy.LateLast{Placer: policy.EDF{Now: now}, Now: now}, GPUs: []plan.GPU{{UUID: "g", Arbitrated: true}}}
		beside := f.Grant(in)
		for i := range containers {
			b := &containers[i]
			if b.Cause == plan.Asked || b.ID == "first" {
				continue
			}
			b.Standing, b.Cause = plan.Ours, plan.Arbitrate
			if beside[b.ID] != "" {
				b.Standing, b.Cause, b.Since = plan.Runs, "", in.Now
				ran[b.ID] += every
			}
		}
	}
	return ran
}

func begun(c *plan.Container) { c.Since = now }

func TestBatchRunsBesideADeadlineForItsFloor(t *testing.T) {
	for _, tt := range []struct {
		name       string
		share      float64
		containers []plan.Container
		want       map[string]float64 // of the time, beside one other: twice what it gets
	}{
		{"its share, of a GPU that two divide", 0.1, []plan.Container{box("first", 999, 0, runs), box("a", 0, 0, begun)}, map[string]float64{"a": 0.2}},
		{"by default 5 %", 0, []plan.Container{box("first", 999, 0, runs), box("a", 0, 0, begun)}, map[string]float64{"a": 0.1}},
		{"two by turns", 0.1, []plan.Container{box("first", 999, 0, runs), box("a", 0, 0, begun), box("b", 0, 0, begun)}, map[string]float64{"a": 0.1, "b": 0.1}},
		{"late ones have one of their own", 0.1, []plan.Container{box("first", 999, 0, runs), box("a", 0, 0, begun), box("late", -1, 0, begun)}, map[string]float64{"a": 0.3, "late": 0.3}},
		{"not who waits for an earlier deadline", 0.1, []plan.Container{box("first", 9, 0, runs), box("a", 99, 0, begun)}, map[string]float64{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ran := pass(&plan.Floor{Share: tt.share}, 100, tt.containers...)
			for _, b := range tt.containers {
				if got := ran[b.ID].Seconds() / 100; math.Abs(got-tt.want[b.ID]) > 0.04 {
					t.Errorf("%s ran for %.2f of the time, want %.2f", b.ID, got, tt.want[b.ID])
				}
			}
		})
	}
}

// Without us it would have run all the time: whoever has waited for long runs beside
// those of its own place, but not beside a deadline.
func TestWhoHasWaitedForLongRunsBesideItsEquals(t *testing.T) {
	for _, tt := range []struct {
		name       string
		containers []plan.Container
		want       float64 // seconds that a runs, of 40
	}{
		{"a stranger after 30 s", []plan.Container{box("first", 0, 0, runs), box("a", 0, 0, begun)}, 10},
		{"a short one once sharing would have cost it as much", []plan.Container{box("first", 0, 0, runs), box("a", 0, 5, begun), box("b", 0, 0, begun)}, 30},
		{"a late one beside another", []plan.Container{box("first", -2, 0, runs), box("a", -1, 5, begun)}, 35},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := pass(&plan.Floor{}, 40, tt.containers...)["a"].Seconds(); math.Abs(got-tt.want) > 0.5 {
				t.Errorf("it runs for %.1f s, want %.1f", got, tt.want)
			}
		})
	}
}

// Who comes to one that has computed for half a minute does not wait as long again, if that one is not known to end.
func TestWhoComesToOneThatGoesOnWaitsAMoment(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first plan.Container
		alone float64 // seconds that it has had the GPU
		want  float64 // seconds that a runs, of 40
	}{
		{"it has gone on for a minute", box("first", 0, 0, runs), 60, 38},
		{"it has just begun", box("first", 0, 0, runs), 5, 15},
		{"an hour of it is left", box("first", 0, 3600, runs), 60, 38},
		{"it ends soon", box("first", 0, 20, runs), 60, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &plan.Floor{}
			pass(f, tt.alone, tt.first)
			if got := pass(f, 40, tt.first, box("a", 0, 0, begun))["a"].Seconds(); math.Abs(got-tt.want) > 0.5 {
				t.Errorf("it runs for %.1f s, want %.1f", got, tt.want)
			}
		})
	}
}

// Those that have ended would have shared, too.
func TestEqualsThatHaveEndedCount(t *testing.T) {
	f := &plan.Floor{}
	a := box("a", 0, 5, begun)
	a.Standing, a.Cause = plan.Ours, plan.Arbitrate
	joins := func(after time.Duration, others ...plan.Container) bool {
		at := now.Add(after)
		return f.Grant(plan.Input{Now: at, Rule: plan.One{}, Preemption: plan.DefaultPreemption(), Containers: append(others, a),
			Order: policy.LateLast{Placer: policy.EDF{Now: now}, Now: now}, GPUs: []plan.GPU{{UUID: "g", Arbitrated: true}}})["a"] != ""
	}
	first, second := box("first", 0, 0, runs), box("b", 0, 0, begun)
	if joins(4*time.Second, first, second) || joins(9*time.Second, second) {
		t.Error("it runs beside the others before sharing with both would have cost it as much")
	}
	if !joins(11*time.Second, second) {
		t.Error("it does not run beside the other")
	}
}

func TestNothingIsSavedUp(t *testing.T) {
	f := &plan.Floor{Share: 0.1}
	pass(f, 100, box("first", 999, 0, runs)) // no batch is there
	if ran := pass(f, 2, box("first", 999, 0, runs), box("a", 0, 0, begun)); ran["a"] > 0 {
		t.Errorf("it runs at once, for %v", ran["a"])
	}
	pass(f, 100, box("first", 0, 0, runs), box("a", 0, 0, begun)) // nobody comes before them
	ran := pass(f, 10, box("first", 999, 0, runs), box("a", 0, 0, begun))
	if ran["a"] < time.Second {
		t.Errorf("what it had for itself counts against it: %v", ran["a"])
	}
}

// A plan lets those beside others compute, says why, and gives nobody's turn away.
func TestThoseBesideTakeNobodysTurn(t *testing.T) {
	p := plan.Make(plan.Input{
		Now: now, Order: policy.EDF{Now: now}, Rule: plan.One{}, Preemption: plan.DefaultPreemption(), Beside: map[string]string{"a": "its part"},
		Containers: []plan.Container{box("first", 9, 0, runs), box("a", 0, 0), box("b", 0, 0)},
		GPUs:       []plan.GPU{{UUID: "g", Arbitrated: true, Admitted: []string{"first"}}},
	})
	if !slices.Equal(p.Admitted["g"], []string{"first"}) || !slices.Equal(p.May()["g"], []string{"first", "a"}) || !slices.Equal(p.Queue["g"], []string{"b"}) {
		t.Errorf("%+v", p)
	}
	if len(p.Actions) != 1 || p.Actions[0].Kind != plan.Unpause || p.Actions[0].Reason != "its part" {
		t.Errorf("%+v", p.Actions)
	}
}
