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
)

const gib = 1 << 30

// holding is n GiB on g; needing the same of what is expected.
func holding(n uint64) func(*plan.Container) {
	return func(c *plan.Container) {
		c.Standing, c.Cause = plan.Runs, ""
		c.Memory.Held = map[string]uint64{"g": n * gib}
	}
}

func needing(n uint64) func(*plan.Container) {
	return func(c *plan.Container) { c.Memory.Needs = map[string]uint64{"g": n * gib} }
}

func swappable(cost float64) func(*plan.Container) {
	return func(c *plan.Container) { c.Memory.Can, c.Memory.Cost = true, sec(cost) }
}

func out(n uint64) func(*plan.Container) {
	return func(c *plan.Container) {
		c.Memory.Out, c.Standing, c.Cause = true, plan.Ours, plan.OfMemory
		c.Memory.Needs = map[string]uint64{"g": n * gib}
	}
}

func waiting(s float64) func(*plan.Container) {
	return func(c *plan.Container) { c.Memory.Waits = now.Add(-sec(s)) }
}

// arriving is one that asks for its memory, and holds none yet.
func arriving(c *plan.Container) {
	c.Standing, c.Cause = plan.Runs, ""
	c.Memory.Asked, c.Memory.Guarded = true, true
}

func unasked(c *plan.Container)    { c.Memory.Asked, c.Memory.Guarded = false, false }
func unlabelled(c *plan.Container) { c.Managed = false }
func forbidden(c *plan.Container)  { c.Never = true }
func overdue(c *plan.Container)    { c.Memory.Overdue = true }
func returned(c *plan.Container)   { c.Memory.Returned = true }
func idle(c *plan.Container)       { c.Tasks = nil }
func evicted(c *plan.Container)    { c.Memory.Evict = "others wait for it in a circle" }
func exempt(c *plan.Container)     { c.Exempt = "held for long enough" }
func busy(c *plan.Container)       { c.Memory.Busy = true }
func cameBack(c *plan.Container)   { c.Memory.Since = now.Add(-time.Second) }

func starved(c *plan.Container)  { c.Memory.Starved = "it asks for more than is free" }
func relieved(c *plan.Container) { c.Standing, c.Cause = plan.Ours, plan.Relieve }

func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		name       string
		containers []plan.Container
		want       string // actions
		bar        string // ids
	}{
		{"those that fit begin", []plan.Container{box("a", 9, 2, holding(20), needing(20)), box("b", 9, 2, arriving, needing(15))}, "", ""},
		{"what is expected counts, not what is held", []plan.Container{box("a", 9, 2, holding(5), needing(30)), box("b", 9, 2, arriving, needing(15))}, "", "b"},
		{"a smaller one goes beside one that waits", []plan.Container{box("a", 9, 2, holding(20), needing(20)),
			box("b", 9, 2, arriving, needing(25)), box("c", 9.5, 2, arriving, needing(10))}, "", "b"},
		{"but not for ever", []plan.Container{box("a", 9, 2, holding(20), needing(20)),
			box("b", 9, 2, arriving, needing(25), waiting(11)), box("c", 9.5, 2, arriving, needing(10))}, "", "b c"},
		{"of strangers as much is expected as of the largest", []plan.Container{box("a", 9, 2, holding(25)), box("b", 9.5, 2, arriving)}, "", "b"},
		{"who is first in order begins, whatever it needs", []plan.Container{box("a", 9, 2, arriving, needing(40)), box("b", 9.5, 2, arriving, needing(1))}, "", "b"},
		{"who is expected to need more than there is begins alone", []plan.Container{box("a", 9, 2, arriving, needing(50)), box("b", 9.5, 2, arriving, needing(1))}, "", "b"},
		{"who may no longer be held comes back", []plan.Container{box("a", 9, 2, holding(5), needing(5)), box("b", 9.5, 2, out(20), unlabelled), box("c", 9.5, 2, out(10), forbidden)}, "swap-in b, swap-in c", ""},
		{"and comes back alone", []plan.Container{box("a", 9, 2, out(50)), box("b", 9.5, 2, arriving, needing(1))}, "swap-in a", "b"},

		{"who did not ask for that begins, whatever it needs", []plan.Container{box("a", 9, 2, holding(30)), box("b", 9.5, 2, arriving, unasked, needing(20))}, "", ""},
		{"nobody is swapped out for it", []plan.Container{box("a", 30, 20, holding(30), swappable(1)), box("b", 8, 2, arriving, unasked, needing(20))}, "", ""},
		{"one that waits does not keep it back", []plan.Container{box("a", 9, 2, holding(20), needing(20)),
			box("b", 9, 2, arriving, needing(25), waiting(11)), box("c", 9.5, 2, arriving, unasked, needing(10))}, "", "b"},

		{"one that would miss its deadline gets another's memory", []plan.Container{box("a", 30, 20, holding(30), swappable(1)), box("b", 8, 2, arriving, needing(20))}, "swap-out a", "b"},
		{"not if there is time", []plan.Container{box("a", 30, 2, holding(30), swappable(1)), box("b", 8, 2, arriving, needing(20))}, "", "b"},
		{"not if it is late in any case", []plan.Container{box("a", 30, 20, holding(30), swappable(7)), box("b", 8, 2, arriving, needing(20))}, "", "b"},
		{"not if that moves the miss", []plan.Container{box("a", 9, 8, holding(30), swappable(1)), box("b", 8, 2, arriving, needing(20))}, "", "b"},
		{"not if it costs more than it wins", []plan.Container{box("a", 30, 1, holding(30), swappable(3)), box("b", 1.9, 0.5, arriving, needing(20))}, "", "b"},
		{"not one that cannot be swapped", []plan.Container{box("a", 30, 20, holding(30)), box("b", 8, 2, arriving, needing(20))}, "", "b"},
		{"not if it does not help", []plan.Container{box("a", 30, 20, holding(10), swappable(1)), box("x", 40, 20, holding(25)), box("b", 8, 2, arriving, needing(20))}, "", "b"},
		{"as few as needed, the last in order first", []plan.Container{box("a", 30, 20, holding(20), swappable(1)), box("x", 40, 20, holding(20), swappable(1)),
			box("b", 8, 2, arriving, needing(20))}, "swap-out x", "b"},
		{"none that is not needed beside a larger one", []plan.Container{box("a", 30, 20, holding(30), swappable(1)), box("x", 40, 20, holding(5), swappable(1)),
			box("b", 8, 2, arriving, needing(35))}, "swap-out a", "b"},
		{"one at a time", []plan.Container{box("a", 30, 20, holding(30), swappable(1)), box("x", 40, 20, out(5), busy), box("b", 8, 2, arriving, needing(20))}, "", "b"},

		{"without deadlines only after a long wait", []plan.Container{box("a", 0, 60, holding(30), swappable(1)), box("b", 0, 2, arriving, needing(20), waiting(5), firstInOrder)}, "", "b"},
		{"and then", []plan.Container{box("a", 0, 60, holding(30), swappable(1)), box("b", 0, 2, arriving, needing(20), waiting(11), firstInOrder)}, "swap-out a", "b"},
		{"not if it is over soon", []plan.Container{box("a", 0, 3, holding(30), swappable(1)), box("b", 0, 2, arriving, needing(20), waiting(11), firstInOrder)}, "", "b"},
		{"who has just come back stays", []plan.Container{box("a", 0, 60, holding(30), swappable(1), cameBack), box("b", 0, 2, arriving, needing(20), waiting(11), firstInOrder)}, "", "b"},

		{"who was swapped out comes back when there is room", []plan.Container{box("a", 30, 20, out(30))}, "swap-in a", ""},
		{"not before", []plan.Container{box("a", 30, 20, out(30)), box("b", 8, 2, holding(20))}, "", ""},
		{"not beside one that comes first", []plan.Container{box("a", 30, 20, out(30)), box("b", 8, 2, arriving, needing(20))}, "", ""},
		{"who may not be kept out comes first", []plan.Container{box("a", 30, 20, out(30), exempt), box("b", 8, 2, arriving, needing(20))}, "swap-in a", "b"},
		{"who is out and late waits for room", []plan.Container{box("a", -1, 20, out(30)), box("b", 0, 60, holding(30), swappable(1))}, "", ""},
		{"but not longer than is allowed", []plan.Container{box("a", -1, 20, out(30), overdue), box("b", 0, 60, holding(30), swappable(1))}, "swap-out b", ""},
		{"nor if the other was out before", []plan.Container{box("a", -1, 20, out(30), overdue), box("b", 0, 60, holding(30), swappable(1), exempt, returned)}, "swap-out b", ""},
		{"but a person's word counts", []plan.Container{box("a", -1, 20, out(30), overdue), box("b", 0, 60, holding(30), swappable(1), exempt)}, "", ""},
		{"also without a task", []plan.Container{box("a", 0, 0, out(30), idle, overdue), box("b", 8, 2, holding(30), swappable(1))}, "swap-out b", ""},
		{"a circle is broken whatever it costs", []plan.Container{box("a", 3, 2, holding(10), swappable(60), evicted)}, "swap-out a", ""},
		{"but not with what cannot be swapped", []plan.Container{box("a", 3, 2, holding(10), evicted)}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := plan.Input{Now: now, Order: policy.EDF{Now: now}, Rule: plan.Adaptive{}, Preemption: plan.DefaultPreemption(),
				GPUs: []plan.GPU{{UUID: "g", Room: 40 * gib}}, Containers: tt.containers}
			p := plan.Make(in)
			var got []string
			for _, a := range p.Actions {
				got = append(got, string(a.Kind)+" "+a.ContainerID)
			}
			var bar []string
			for _, c := range tt.containers {
				if p.Barred[c.ID] != "" {
					bar = append(bar, c.ID)
				}
			}
			if strings.Join(got, ", ") != tt.want || strings.Join(bar, " ") != tt.bar {
				t.Errorf("%v, barred %v", p.Actions, p.Barred)
			}
			for i := range tt.containers { // then whoever may not begin is paused
				tt.containers[i].Memory.Guarded = false
			}
			for _, a := range plan.Make(in).Actions {
				if a.Kind == plan.Pause && (a.Cause != plan.OfMemory || p.Barred[a.ContainerID] == "") {
					t.Errorf("without a guard: %+v", a)
				}
			}
		})
	}
}

// firstInOrder lets a task without a deadline go before the others.
func firstInOrder(c *plan.Container) { c.Tasks[0].Start.Time = epoch.Add(-time.Hour) }

func drawMemory(t *rapid.T, in *plan.Input) {
	for i := range in.GPUs {
		in.GPUs[i].Relieve = false
		in.GPUs[i].Room = 40 * gib
	}
	for i := range in.Containers {
		c := &in.Containers[i]
		m := map[string]uint64{}
		for _, g := range in.GPUs {
			if on(*c, g.UUID) {
				m[g.UUID] = uint64(rapid.IntRange(1, 30).Draw(t, "GiB")) * gib
			}
		}
		switch rapid.IntRange(0, 3).Draw(t, "memory") {
		case 0:
			c.Memory.Held = m
		case 1:
			c.Memory.Held, c.Memory.Needs = m, maps.Clone(m)
			for g := range m {
				c.Memory.Needs[g] += uint64(rapid.IntRange(0, 20).Draw(t, "GiB more")) * gib
			}
		case 2:
			c.Memory.Needs = m
		}
		c.Memory.Asked = rapid.IntRange(0, 3).Draw(t, "asked") > 0
		c.Memory.Guarded = c.Memory.Asked && rapid.Bool().Draw(t, "guarded")
		c.Memory.Can = rapid.Bool().Draw(t, "can")
		c.Memory.Cost = rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 20 * time.Second}).Draw(t, "cost")
		if rapid.Bool().Draw(t, "waits") {
			c.Memory.Waits = now.Add(-rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "waits for"))
		}
		if c.Standing == plan.Ours && c.Memory.Held == nil && len(m) > 0 && rapid.Bool().Draw(t, "out") {
			c.Memory.Out, c.Memory.Needs, c.Cause = true, m, plan.OfMemory
			c.Memory.Overdue = rapid.Bool().Draw(t, "overdue")
		}
	}
}

// beginsAnyway reports whether a container that holds nothing may not be kept from beginning.
func beginsAnyway(c plan.Container) bool {
	return !c.Memory.Out && len(c.Memory.Held) == 0 && len(c.Tasks) > 0 && (!c.Memory.Asked || !c.Controllable())
}

// Whatever is true: nobody is swapped who must not be, what begins fits, the
// first in order begins on an empty GPU, and nothing goes out and in again.
func TestMemoryProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 2)
		drawMemory(t, &in)
		p := plan.Make(in)
		for id := range p.Barred {
			if c := find(in, id); c.Never || !c.Managed || !c.Controllable() || !c.Memory.Asked || len(c.Memory.Held) > 0 {
				t.Fatalf("barred: %+v", c)
			}
		}
		after := apply(t, in, p) // checks that who is swapped may be
		for _, g := range in.GPUs {
			var before, sum uint64
			began := false
			for _, c := range after.Containers {
				was := find(in, c.ID)
				if !c.Managed || c.Never {
					continue
				}
				before += max(was.Memory.Held[g.UUID], was.Memory.Needs[g.UUID]*bit(len(was.Memory.Held) > 0))
				if c.Memory.Held[g.UUID] > 0 {
					sum += max(c.Memory.Held[g.UUID], c.Memory.Needs[g.UUID])
				}
				if was.Memory.Out && !c.Memory.Out {
					began = began || c.Memory.Held[g.UUID] > 0
				}
			}
			if began && sum > max(g.Room, before) {
				t.Fatalf("%d GiB are to be on %s: %+v", sum/gib, g.UUID, after.Containers)
			}
		}
		if slices.ContainsFunc(in.Containers, beginsAnyway) {
			// Room is made for that one, too, though it has not begun. Who was swapped out for that comes back if it
			// comes first in order (one in some 50,000 draws).
			return
		}
		for _, a := range plan.Make(after).Actions {
			i := slices.IndexFunc(p.Actions, func(b plan.Action) bool { return b.ContainerID == a.ContainerID })
			if i >= 0 && (a.Kind == plan.SwapOut && p.Actions[i].Kind == plan.SwapIn || a.Kind == plan.SwapIn && p.Actions[i].Kind == plan.SwapOut) {
				t.Fatalf("%+v and then %+v", p.Actions[i], a)
			}
		}
	})
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func sec(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Under memory pressure one is swapped out once: when it is back the card is as full as
// before. The first in order stays in any case.
func TestPressureSwapsEachContainerOnce(t *testing.T) {
	relieve := func(containers ...plan.Container) string {
		p := plan.Make(plan.Input{Now: now, Order: policy.EDF{Now: now}, Rule: plan.Adaptive{}, Preemption: plan.DefaultPreemption(),
			GPUs: []plan.GPU{{UUID: "g", Room: 40 * gib, Memory: 0.96, Fresh: true, Relieve: true}}, Containers: containers})
		var got []string
		for _, a := range p.Actions {
			got = append(got, string(a.Kind)+" "+a.ContainerID)
		}
		return strings.Join(got, ", ")
	}
	a, b, c := box("a", 9, 2, holding(18), swappable(1)), box("b", 12, 2, holding(10), swappable(1)), box("c", 15, 2, holding(10), swappable(1))
	for _, tt := range []struct {
		containers []plan.Container
		want       string
	}{
		{[]plan.Container{a, b, c}, "swap-out c"},
		{[]plan.Container{a, b, box("c", 15, 2, holding(10), swappable(1), cameBack)}, "swap-out b"},
		{[]plan.Container{a, box("b", 12, 2, holding(20), swappable(1), cameBack)}, ""},
		// Who waits for memory does not compute: the last that does goes on, or nobody ever would.
		{[]plan.Container{box("a", 9, 2, holding(1), starved), b}, ""},
		{[]plan.Container{box("a", 9, 2, holding(1), starved), b, c}, "swap-out c"},
		{[]plan.Container{box("a", 9, 2, holding(1), starved), box("b", 12, 2, holding(10), relieved), box("c", 15, 2, holding(10), relieved)}, "unpause b"},
	} {
		if got := relieve(tt.containers...); got != tt.want {
			t.Errorf("%q; want %q", got, tt.want)
		}
	}
}
