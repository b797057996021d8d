package plan_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/plan"
)

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
				t.Fatalf("released without a fresh sample, or with the memory full: %+v", a)
			}
			after := apply(t, in, p)
			for _, earlier := range contenders(after)[:i] {
				if earlier.Standing != plan.Runs {
					t.Fatalf("%s was released before %s", a.ContainerID, earlier.ID)
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

// A container counts from its use of GPU memory on: before, it is neither held nor takes
// anybody's turn.
func TestWhoUsesNoGPUMemoryYetIsNotHeld(t *testing.T) {
	for _, s := range schemes {
		s.Now, s.GPUs = now, []plan.GPU{{UUID: "g", Arbitrated: true, Utilization: 1, Fresh: true}}
		s.Containers = []plan.Container{box("coming", 1, 1, runs), box("a", 20, 5, runs)}
		s.Containers[0].NoMemory = true
		p := plan.Make(s)
		if w, waits := p.Waits["coming"]; waits || !slices.Equal(p.Admitted["g"], []string{"a"}) {
			t.Errorf("%T %T: %+v, admitted %v", s.Order, s.Rule, w, p.Admitted)
		}
	}
}
