package actuator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/exporter/task"
)

// neighbour starts a container that asks for a deadline, and for no memory.
func (b *memoryBench) neighbour(id string) {
	b.run(id)
	b.source.set(func() {
		s := &b.source.containers[len(b.source.containers)-1].Spec
		s.Deadline, s.Class = 60, task.ClassDeadline
	})
	b.await(id+" is seen", func() bool { return b.container(id).Managed })
}

// Probes on allocations come with laxity.gpu-memory, whatever else is on the card, or
// with --memory-share=fair|adaptive for all that are labelled, which the state says.
func TestWhoIsAskedAboutItsAllocations(t *testing.T) {
	for name, test := range map[string]struct {
		share allocator.Share
		swap  bool
		why   string // of one without a limit; empty: it is let alone
	}{
		"by limit":           {allocator.ByLimit, false, ""},
		"by limit, swapping": {allocator.ByLimit, true, ""},
		"fair":               {allocator.Fair, false, "--memory-share=fair"},
		"adaptive, swapping": {allocator.Adaptive, true, "--memory-share=adaptive"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMemoryBench(t, test.swap, func(o *actuator.Options) { o.Config.MemoryShare = test.share })
			b.neighbour("neighbour")
			b.run("unlabelled", "never")
			b.source.set(func() {
				b.source.containers[1].Spec = task.Spec{}
				b.source.containers[2].Spec.NeverPause, b.source.containers[2].Spec.GPUMemory = true, 10
			})
			b.await("the labels are seen", func() bool { return !b.container("unlabelled").Managed && b.container("never").NeverPause })
			b.begin("limited", 400)
			for id, want := range map[string]string{"limited": "laxity.gpu-memory", "neighbour": test.why, "unlabelled": "", "never": ""} {
				b.await("the guard and the state are told about "+id, func() bool {
					said := b.container(id).MemoryAsked
					return b.guard.covers(id) == (want != "") && (said != "") == (want != "") && strings.Contains(said, want)
				})
			}
			if passes := b.guard.decider.Ceiling("limited", gpu0, 400) == 400; passes != (test.why == "") {
				t.Errorf("the kernel lets pass what is within the limit: %v", passes)
			}
		})
	}
}

// Who asks for no memory begins at once, also where the card is expected to be full:
// it is neither asked nor paused.
func TestWhoAsksForNoMemoryIsNotKeptFromBeginning(t *testing.T) {
	for name, guard := range map[string]*fakeGuard{"guarded": {}, "not guarded": {why: errors.New("no uprobes here")}} {
		t.Run(name, func(t *testing.T) {
			b := newMemoryBenchWith(t, guard, true, nil)
			b.limited("a", 900)
			b.holds("a", 800)
			b.neighbour("neighbour")
			b.limited("b", 900)
			b.await("b may not begin", func() bool { return b.container("b").MemoryWaits != "" })
			if c := b.container("neighbour"); c.MemoryWaits != "" || c.Waits != "" {
				t.Errorf("%+v", c)
			}
			if guard.why == nil {
				b.calledOnly()
			} else {
				b.awaitPaused("b", "b")
				b.calledOnly("pause b")
			}
		})
	}
}

// A container that stands at an allocation has a reason, whatever the plan says of it.
func TestWhoStandsAtAnAllocationHasAReason(t *testing.T) {
	const why = "its allocation is being decided about"
	b := newMemoryBenchWith(t, &fakeGuard{waits: map[string]string{"a": why}}, true, nil)
	b.limited("a", 900)
	b.await("its reason", func() bool { return b.container("a").MemoryWaits == why })
}

// With the guard switched off limits keep nobody from beginning.
func TestGuardOffKeepsNobodyFromBeginning(t *testing.T) {
	b := newMemoryBench(t, true, func(o *actuator.Options) { o.Mechanisms.MemoryGuard = config.MemoryOff })
	b.limited("a", 900)
	b.holds("a", 800)
	b.limited("b", 900)
	b.await("b is seen", func() bool { return b.container("b").Managed })
	b.calledOnly()
	if c := b.container("b"); c.MemoryWaits != "" || c.Waits != "" {
		t.Errorf("%+v", c)
	}
}

// Of two that cannot be on the card together neither stands for ever: who was out for
// --max-hold comes back at the cost of the other one, again and again.
func TestTwoThatDoNotFitTakeTurns(t *testing.T) {
	b := newMemoryBench(t, true, func(o *actuator.Options) { o.Config.Policy, o.Config.MaxHold = "edf", time.Second })
	b.begin("a", 800)
	b.want(b.allocate("a", 800), memory.Grant)
	b.begin("b", 800)
	due := func(i int, in time.Duration) {
		b.source.set(func() {
			b.source.tasks[i].Deadline = time.Now().Add(in)
			b.source.containers[i].Spec.Deadline, b.source.containers[i].Spec.Class = 20, task.ClassDeadline
		})
	}
	due(1, 20*time.Second)
	b.want(b.allocate("b", 800), memory.Grant)
	due(0, time.Minute)
	for _, id := range []string{"b", "a"} {
		b.decided(id+" goes out for the other one", func(d decision.Decision) bool {
			return d.Kind == decision.SwapOut && d.ContainerID == id && d.Result == decision.Done && strings.Contains(d.Reason, "for as long as is allowed")
		})
	}
}
