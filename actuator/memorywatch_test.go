package actuator_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
)

// limited starts a container whose allocations need not be guarded.
func (b *memoryBench) limited(id string, limit uint64) {
	b.run(id)
	b.source.set(func() { b.source.containers[len(b.source.containers)-1].Spec.GPUMemory = limit })
}

func (b *memoryBench) pausedFor(id, why string) {
	b.Helper()
	b.decided(id+" is paused for "+why, func(d decision.Decision) bool {
		return d.Kind == decision.Pause && d.ContainerID == id && d.Result == decision.Done &&
			strings.Contains(d.Reason, "its limit is") && strings.Contains(d.Reason, why)
	})
}

// unguarded awaits what the state says of whose allocations are not denied.
func (b *memoryBench) unguarded(want map[string]string) {
	b.Helper()
	b.await("the state says whose allocations are not denied", func() bool {
		for id, why := range want {
			if got := b.container(id).MemoryUnguarded; (got == "") != (why == "") || !strings.Contains(got, why) {
				return false
			}
		}
		return true
	})
}

// Where allocations are not guarded, who exceeds its limit is paused, and nobody else.
func TestLimitsAreWatchedWithoutAGuard(t *testing.T) {
	b := newMemoryBenchWith(t, &fakeGuard{why: errors.New("no uprobes here")}, false, nil)
	b.limited("a", 400)
	b.limited("b", 400)
	b.run("c")
	b.holds("a", 400)
	b.holds("c", 600)
	b.holds("b", 401)
	b.pausedFor("b", "no uprobes here")
	b.awaitPaused("b", "a", "b", "c")
	b.unguarded(map[string]string{"a": "no uprobes here", "b": "no uprobes here", "c": ""})
	// A person's word counts for more.
	b.must(b.Release(t.Context(), alice, "b"))
	b.awaitPaused("", "a", "b", "c")
	b.await("no lease is left", func() bool { return len(b.State().Leases) == 0 })
	b.calledOnly("pause b", "unpause b")
}

// Where an allocation could not be denied, that is told, and who takes more than
// its limit is paused.
func TestWhoCannotBeDeniedIsPaused(t *testing.T) {
	for name, tt := range map[string]struct {
		holds uint64
		calls []string
	}{
		"within its limit": {400, nil},
		"beyond its limit": {401, []string{"pause b"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMemoryBench(t, false, nil)
			b.begin("a", 400)
			b.begin("b", 400)
			b.guard.fail("b", "a tracer is attached")
			b.decided("that is told", func(d decision.Decision) bool {
				return d.Kind == decision.Memory && d.Result == decision.Failed && d.ContainerID == "b" && strings.Contains(d.Reason, "tracer")
			})
			b.unguarded(map[string]string{"a": "", "b": "tracer"})
			b.holds("a", 401) // by less than a context, and guarded
			b.holds("b", tt.holds)
			if len(tt.calls) > 0 {
				b.pausedFor("b", "a tracer is attached")
			}
			b.calledOnly(tt.calls...)
		})
	}
}

// One context is not seen before it is there; who holds more than that beyond its limit
// got by the guard.
func TestWhoGetsByTheGuardIsPaused(t *testing.T) {
	const limit, context = 1 << 30, 512 << 20
	b := newMemoryBench(t, false, nil)
	b.source.set(func() { b.source.gpus[0].MemoryTotal = 8 << 30 })
	b.begin("a", limit)
	b.begin("b", limit)
	b.holds("a", limit+context)
	b.holds("b", limit+context+1)
	b.pausedFor("b", "got by the guard")
	b.decided("that is told", func(d decision.Decision) bool {
		return d.Kind == decision.Memory && d.Result == decision.Opened && d.ContainerID == "b"
	})
	b.calledOnly("pause b")
}

func TestNoWatchWhereGuardingIsOff(t *testing.T) {
	b := newMemoryBench(t, false, func(o *actuator.Options) { o.Mechanisms.MemoryGuard = config.MemoryOff })
	b.limited("a", 400)
	b.holds("a", 900)
	b.calledOnly()
	b.unguarded(map[string]string{"a": ""})
}
