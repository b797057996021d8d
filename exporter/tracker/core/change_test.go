package core_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

func due(seconds float64) task.Change {
	d := task.Seconds(seconds).Duration()
	return task.Change{Deadline: &d}
}

func share(of float64) task.Change { return task.Change{Share: &of} }

func TestDeadlineSetAtRunTime(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	if _, ok := w.m.Change(id("nobody"), due(5), at(2)); ok {
		t.Error("a container that does not exist has a deadline now")
	}
	if c, ok := w.m.Change(id(web), due(5), at(2)); !ok || c.Spec.Deadline != 5 {
		t.Fatal("refused")
	}
	same(t, "deadline of the unfinished task", w.one().Deadline, at(6))
	w.exit(3, pid)
	w.meet(pid+1, web)
	w.sense(10, pid+1, sensor.ContextMade)
	same(t, "deadline of the next task", w.one().Deadline, at(15))
	if c := w.snapshot().Containers[0]; c.Spec.Deadline != 5 || c.Spec.Class != task.ClassDeadline {
		t.Errorf("spec: %+v", c.Spec)
	}
	w.m.Change(id(web), due(0), at(11)) // back to the label
	same(t, "deadline by the label", w.one().Deadline, at(19))
}

// Deadline and share are changed apart from each other, and both last over a restart.
func TestShareChangedAtRunTime(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, map[string]string{task.LabelShare: "10%"})
	is := func(when string, deadline task.Seconds, share float64) {
		t.Helper()
		if s := w.snapshot().Containers[0].Spec; s.Deadline != deadline || s.Share != share {
			t.Errorf("%s: %+v, want deadline %v and share %v", when, s, deadline, share)
		}
	}
	w.m.Change(id(web), share(0.3), at(1))
	is("a share alone", 0, 0.3)
	w.m.Change(id(web), due(5), at(2))
	is("a deadline too", 5, 0.3)
	w = w.restart(3)
	w.run(4, web, map[string]string{task.LabelShare: "10%"})
	is("after a restart", 5, 0.3)
	w.m.Change(id(web), due(0), at(5))
	is("the deadline back", 0, 0.3)
	w.m.Change(id(web), share(0), at(6))
	is("the share back", 0, 0.1)
	if o, ok := w.m.TakeChanges().Overrides[id(web)]; !ok || o != nil {
		t.Errorf("to store: %v, want its removal", o)
	}
}

func TestDeadlineOfAContainerWithoutLabels(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, map[string]string{"other": "x"})
	w.meet(pid, web)
	w.sense(1, pid, sensor.ContextMade)
	if w.one().HasDeadline() {
		t.Fatal("a deadline out of nothing")
	}
	w.m.Change(id(web), due(5), at(2))
	same(t, "deadline", w.one().Deadline, at(6))
	if w.snapshot().Containers[0].Spec.Managed {
		t.Error("a container without laxity labels is managed now")
	}
	w.m.Change(id(web), due(0), at(3))
	if w.one().HasDeadline() {
		t.Error("the deadline stayed")
	}
}

func TestDeadlineEndsWithItsContainer(t *testing.T) {
	w := newWorld(t)
	w.run(0, web, nil)
	w.m.Change(id(web), due(5), at(1))
	w.event(2, container.Died, web) // stopped, and started again: the same container
	w.run(3, web, nil)
	if d := w.snapshot().Containers[0].Spec.Deadline; d != 5 {
		t.Errorf("deadline %v after a stop, want 5", d)
	}
	w.event(4, container.Removed, web)
	w.run(5, web, nil)
	if d := w.snapshot().Containers[0].Spec.Deadline; d != 9 {
		t.Errorf("deadline %v after the removal, want the label's 9", d)
	}
	if o, ok := w.m.TakeChanges().Overrides[id(web)]; !ok || o != nil {
		t.Errorf("to store: %v, want its removal", o)
	}
}

func TestOverridesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.m = core.New(core.Options{MaxOverrides: 2})
	for i, name := range []string{"a", "b", "c"} {
		w.run(float64(i), name, nil)
		w.m.Change(id(name), due(5), at(float64(i)))
		w.event(float64(i), container.Died, name)
	}
	w.run(8, "d", nil)
	w.m.Change(id("d"), due(5), at(8))
	kept := 0
	for _, o := range w.m.TakeChanges().Overrides {
		if o != nil {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d run-time deadlines kept, want 2", kept)
	}
}

// What was set before the limit does not outlive a restart.
func TestLimitHoldsForStoredChanges(t *testing.T) {
	for limit, want := range map[time.Duration]task.Seconds{0: 0.05, 50 * time.Millisecond: 0.05, 100 * time.Millisecond: 9} {
		w := newWorld(t)
		w.m = core.New(core.Options{Limits: task.Limits{MinDeadline: limit, MaxShare: 0.4}})
		w.m.Restore(core.State{Overrides: map[string]core.Override{id(web): {Deadline: 0.05, Share: 0.5, Set: at(0)}}}, func(int, string) (core.Subject, bool) { return core.Subject{}, false }, at(0))
		w.run(1, web, map[string]string{task.LabelDeadline: "9s", task.LabelShare: "10%"})
		if is := w.snapshot().Containers[0].Spec; is.Deadline != want || is.Share != 0.1 {
			t.Errorf("with a limit of %v: %+v, want the deadline %v and the label's share", limit, is, want)
		}
	}
}
