package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// story is a GPU with containers c1, c2 … that plays P3's Algorithm 2 through.
type story struct {
	t  *testing.T
	in plan.Input
}

func newStory(t *testing.T, rule plan.Rule, n int) *story {
	s := &story{t: t, in: plan.Input{
		Order: policy.FIFO{}, Rule: rule,
		GPUs: []plan.GPU{{UUID: "g", Arbitrated: true}},
	}}
	for range n {
		s.arrive()
	}
	return s
}

func (s *story) arrive() {
	i := len(s.in.Containers) + 1
	id := "c" + string(rune('0'+i))
	s.in.Containers = append(s.in.Containers, plan.Container{
		ID: id, Name: id, Managed: true, Standing: plan.Runs,
		Tasks: []task.Task{{ID: "t" + id, PID: i, GPUs: []string{"g"}, Start: task.Mark{Time: epoch.Add(time.Duration(i))}}},
	})
}

// step plans at this use (percent), carries the plan out, and checks who runs.
func (s *story) step(fresh bool, use, memory float64, running string) {
	s.t.Helper()
	g := &s.in.GPUs[0]
	g.Fresh, g.Utilization, g.Memory = fresh, use/100, memory/100
	p := plan.Make(s.in)
	var now []string
	for i := range s.in.Containers {
		c := &s.in.Containers[i]
		for _, a := range p.Actions {
			if a.ContainerID == c.ID {
				c.Standing = map[plan.Kind]plan.Standing{plan.Pause: plan.Ours, plan.Unpause: plan.Runs}[a.Kind]
				c.Cause = a.Cause
			}
		}
		if c.Standing == plan.Runs && len(c.Tasks) > 0 {
			now = append(now, c.ID)
		}
	}
	g.Admitted = p.Admitted["g"]
	if got := strings.Join(now, " "); got != running {
		s.t.Fatalf("at %v %% use, %v %% memory: %q run, want %q (%+v)", use, memory, got, running, p.Actions)
	}
}

func (s *story) end(id string) {
	i := slices.IndexFunc(s.in.Containers, func(c plan.Container) bool { return c.ID == id })
	s.in.Containers[i].Tasks = nil
}

func TestP3Story(t *testing.T) {
	s := newStory(t, plan.P3{}, 4)
	s.step(true, 0, 10, "c1")           // nothing admitted yet: the first is kept, whatever the use
	s.step(false, 0, 10, "c1")          // the sample does not show that yet
	s.step(true, 60, 10, "c1 c2")       // below 100 %: one more
	s.step(false, 60, 10, "c1 c2")      // one after another
	s.step(true, 90, 10, "c1 c2 c3")    // and one more
	s.step(true, 100, 10, "c1")         // full: those that started later are out
	s.step(true, 99, 10, "c1 c2")       // room again, in order
	s.step(true, 99, 96, "c1")          // memory above 95 %: the last one is out
	s.step(true, 50, 96, "c1")          // and stays out
	s.step(true, 50, 95, "c1 c2")       // until it is not above 95 % any more
	s.step(true, 100, 50, "c1")         //
	s.end("c1")                         //
	s.step(false, 100, 50, "c2")        // a task finished: the next goes at once
	s.arrive()                          // c5 comes
	s.step(true, 100, 50, "c2")         // and waits, as all that started later
	s.step(true, 10, 50, "c2 c3")       // c5 does not overtake c3 and c4
	s.step(true, 10, 50, "c2 c3 c4")    //
	s.step(true, 10, 50, "c2 c3 c4 c5") //
	s.arrive()                          //
	s.step(false, 10, 50, "c2 c3 c4 c5 c6")
	for _, id := range []string{"c2", "c3", "c4", "c5", "c6"} {
		s.end(id)
	}
	s.step(true, 0, 10, "")
}

func TestFIFOStory(t *testing.T) {
	s := newStory(t, plan.One{}, 3)
	s.step(true, 0, 10, "c1")
	s.step(true, 0, 10, "c1")
	s.end("c2")
	s.step(true, 0, 10, "c1") // c2 ended while it was paused: it is released, and uses no GPU
	s.end("c1")
	s.step(false, 100, 10, "c3")
}
