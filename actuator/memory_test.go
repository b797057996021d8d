package actuator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
)

// fakeGuard holds the allocations of programs that exist in this test alone.
type fakeGuard struct {
	decider memory.Decider

	reconsiders atomic.Int64
	begun       atomic.Int64 // calls of Failures and Cover that have begun

	mu      sync.Mutex
	waiting []*allocation
	covered []memory.Target
	open    map[string]string // containers that may get more than their limits
	waits   map[string]string
	maxWait time.Duration
	why     error
	closed  bool
}

type allocation struct {
	memory.Request
	answer chan memory.Answer
}

func (g *fakeGuard) Why() error { return g.why }

func (g *fakeGuard) Reconsider() {
	g.reconsiders.Add(1)
	go g.ask(nil)
}

// Open asks again about what waits, for otherwise the ledger forgets it.
func (g *fakeGuard) Open(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	go func() {
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				g.ask(nil)
			}
		}
	}()
	return nil
}

func (g *fakeGuard) Waits() map[string]string { return g.waits }

func (g *fakeGuard) SetMaxWait(d time.Duration) { g.maxWait = d }

func (g *fakeGuard) Failures() map[string]string {
	g.begun.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.open)
}

func (g *fakeGuard) fail(id, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = map[string]string{id: why}
}

func (g *fakeGuard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, a := range g.waiting {
		a.answer <- memory.Answer{Verdict: memory.Grant}
	}
	g.waiting = nil
	return nil
}

func (g *fakeGuard) Cover(targets []memory.Target) {
	g.begun.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.covered = targets
}

func (g *fakeGuard) covers(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.covered, func(t memory.Target) bool { return t.ID == id })
}

// told reports whether Cover was called.
func (g *fakeGuard) told() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.covered != nil
}

func (g *fakeGuard) ask(more *allocation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if more != nil {
		g.waiting = append(g.waiting, more)
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(a *allocation) bool {
		answer := g.decider.Decide(a.Request)
		if answer.Verdict == memory.Wait {
			return false
		}
		a.answer <- answer
		return true
	})
}

// fakeSwapper swaps what the source shows.
type fakeSwapper struct {
	b *memoryBench

	mu  sync.Mutex
	out map[string]enforce.Swapped
	// suspending is called before a container is swapped out; may be nil.
	suspending func(id string)
	until      time.Time // the limit of the last Resume
	fails      error     // of each Resume
}

func (s *fakeSwapper) Can(_ context.Context, id string) error {
	if id == "stubborn" {
		return fmt.Errorf("%w: it uses managed memory", enforce.ErrCannotSwap)
	}
	return nil
}

func (s *fakeSwapper) Suspend(_ context.Context, id, name, reason string) (enforce.SwapResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b.isPaused(id) {
		return enforce.SwapResult{}, errors.New("frozen: it cannot be locked")
	}
	if s.suspending != nil {
		s.suspending(id)
	}
	bytes := s.b.held(id)
	s.out[id] = enforce.Swapped{ContainerID: id, Container: name, Reason: reason, Bytes: map[string]uint64{gpu0: bytes}, Since: time.Now(), Stage: enforce.Suspended}
	s.b.engine.SetPaused(id, true)
	s.b.holds(id, 0)
	return enforce.SwapResult{Bytes: map[string]uint64{gpu0: bytes}, Processes: 1, CheckpointSeconds: 0.5}, nil
}

func (s *fakeSwapper) Resume(ctx context.Context, id string, room func(map[string]uint64) error) (enforce.SwapResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.out[id]
	if !ok {
		return enforce.SwapResult{}, enforce.ErrForeign
	}
	if s.until, _ = ctx.Deadline(); s.fails != nil {
		return enforce.SwapResult{}, s.fails
	}
	if room != nil {
		if err := room(r.Bytes); err != nil {
			return enforce.SwapResult{}, fmt.Errorf("%w: %w", enforce.ErrNoRoom, err)
		}
	}
	delete(s.out, id)
	s.b.engine.SetPaused(id, false)
	s.b.holds(id, r.Bytes[gpu0])
	return enforce.SwapResult{Bytes: r.Bytes, Processes: 1, RestoreSeconds: 0.25}, nil
}

func (s *fakeSwapper) Swapped() ([]enforce.Swapped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []enforce.Swapped
	for _, r := range s.out {
		all = append(all, r)
	}
	return all, nil
}

// memoryBench is an actuator whose card has 1024 bytes.
type memoryBench struct {
	*bench
	guard   *fakeGuard
	swapper *fakeSwapper
	metrics *collector.Metrics
	threads int
}

func newMemoryBench(t *testing.T, swap bool, change func(*actuator.Options)) *memoryBench {
	return newMemoryBenchWith(t, &fakeGuard{}, swap, change)
}

func newMemoryBenchWith(t *testing.T, guard *fakeGuard, swap bool, change func(*actuator.Options)) *memoryBench {
	b := &memoryBench{guard: guard, swapper: &fakeSwapper{out: map[string]enforce.Swapped{}}, metrics: collector.New(), threads: 1}
	b.swapper.b = b
	b.bench = newBench(t, func(o *actuator.Options) {
		o.ThreadAlive = func(int, int) bool { return true }
		o.Metrics = b.metrics
		o.Mechanisms.NewMemoryGuard = func(d memory.Decider) (arbiter.MemoryGuard, error) { b.guard.decider = d; return b.guard, nil }
		if swap {
			o.Mechanisms.NewSwapper = func() (enforce.Swapper, error) { return b.swapper, nil }
		}
		if change != nil {
			change(o)
		}
	})
	b.source.set(func() { b.source.gpus[0].MemoryTotal, b.source.gpus[0].MemoryUsed = 1024, 0 })
	return b
}

// begin starts a container with a limit.
func (b *memoryBench) begin(id string, limit uint64) {
	b.run(id)
	b.source.set(func() { b.source.containers[len(b.source.containers)-1].Spec.GPUMemory = limit })
	b.await(id+" is guarded", func() bool { return b.guard.covers(id) })
}

// holds makes the device say what a container holds.
func (b *memoryBench) holds(id string, bytes uint64) {
	b.source.set(func() {
		var sum uint64
		for i := range b.source.containers {
			if b.source.containers[i].ID == id {
				b.source.containers[i].MemoryUsed = map[string]uint64{gpu0: bytes}
			}
			sum += b.source.containers[i].MemoryUsed[gpu0]
		}
		b.source.gpus[0].MemoryUsed = sum
	})
}

func (b *memoryBench) held(id string) uint64 {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	for _, c := range b.source.containers {
		if c.ID == id {
			return c.MemoryUsed[gpu0]
		}
	}
	return 0
}

// allocate is a program that asks for memory and holds it once it is granted.
func (b *memoryBench) allocate(id string, bytes uint64) <-chan memory.Answer {
	held := b.held(id)
	asked, told := make(chan memory.Answer, 1), make(chan memory.Answer, 1)
	a := &allocation{answer: asked, Request: memory.Request{ContainerID: id, PID: 1, TID: b.threads, GPU: gpu0,
		Bytes: bytes, Held: held, Since: time.Now(), Function: "cuMemAlloc_v2"}}
	b.threads++
	go func() {
		answer := <-asked
		if answer.Verdict == memory.Grant {
			b.holds(id, held+bytes)
		}
		told <- answer
	}()
	b.guard.ask(a)
	return told
}

func (b *memoryBench) want(answer <-chan memory.Answer, v memory.Verdict) {
	b.Helper()
	select {
	case a := <-answer:
		if a.Verdict != v {
			b.Errorf("%v: %s, want %v", a.Verdict, a.Reason, v)
		}
	case <-time.After(20 * time.Second):
		b.Fatal("no answer")
	}
}

func (b *memoryBench) still(answer <-chan memory.Answer, id string) state.Container {
	b.Helper()
	b.await(id+" waits for memory", func() bool { return b.container(id).MemoryWaitGPU != "" })
	select {
	case a := <-answer:
		b.Fatalf("%+v, and it should wait", a)
	default:
	}
	return b.container(id)
}

func (b *memoryBench) container(id string) state.Container {
	for _, c := range b.State().Containers {
		if c.ID == id {
			return c
		}
	}
	return state.Container{}
}

// end is the end of a container: its memory is free.
func (b *memoryBench) end(id string) {
	b.source.end(id)
	b.holds(id, 0)
}

func TestTwoThatWouldBlockEachOtherBothEnd(t *testing.T) {
	b := newMemoryBench(t, false, nil)
	b.begin("a", 800)
	b.begin("b", 800)
	b.want(b.allocate("a", 400), memory.Grant)
	first := b.allocate("b", 400) // unsafe: both could wait for ever
	c := b.still(first, "b")
	if c.MemoryWaitGPU != gpu0 {
		t.Errorf("%+v", c)
	}
	b.want(b.allocate("a", 400), memory.Grant)
	asked := b.guard.reconsiders.Load()
	b.end("a")
	b.want(first, memory.Grant)
	b.await("the guard is told that there is room", func() bool { return b.guard.reconsiders.Load() > asked })
	b.want(b.allocate("b", 400), memory.Grant)
	for _, result := range []decision.Result{decision.Waiting, decision.Granted} {
		b.decided(string(result), func(d decision.Decision) bool {
			return d.Kind == decision.Memory && d.ContainerID == "b" && d.Container == "name-b" && d.Result == result
		})
	}
	b.want(b.allocate("b", 400), memory.Deny)
	d := b.decided("a denial", func(d decision.Decision) bool { return d.Result == decision.Denied })
	if d.Cause != string(allocator.Limit) || d.Bytes != 400 {
		t.Errorf("%+v", d)
	}
	if n := testutil.ToFloat64(b.metrics.Allocations.WithLabelValues(gpu0, "deny", "limit")); n != 1 {
		t.Errorf("%v denials", n)
	}
}

// What does not fit beside those that came before does not begin.
func TestWhoDoesNotFitWaitsBeforeItBegins(t *testing.T) {
	b := newMemoryBench(t, false, nil)
	b.begin("a", 600)
	b.want(b.allocate("a", 100), memory.Grant)
	b.begin("b", 600)
	first := b.allocate("b", 1)
	if c := b.still(first, "b"); !strings.Contains(c.MemoryWaits, "name-a") {
		t.Errorf("%q", c.MemoryWaits)
	}
	b.end("a")
	b.want(first, memory.Grant)
}

func TestNeverIsNeverRefused(t *testing.T) {
	b := newMemoryBench(t, false, nil)
	b.begin("a", 900)
	b.want(b.allocate("a", 900), memory.Grant)
	b.run("never")
	b.source.set(func() { b.source.containers[1].Spec.NeverPause = true; b.source.containers[1].Spec.GPUMemory = 10 })
	b.await("seen", func() bool { return b.container("never").NeverPause })
	b.want(b.allocate("never", 500), memory.Grant)
	b.await("it is let alone", func() bool { return !b.guard.covers("never") })
}

// Who must not be held does not wait for memory: a gang where holds are pauses, and who was released. Its own limit
// holds: others on the card count on it.
func TestWhoMustNotBeHeldIsDeniedOverItsLimitAlone(t *testing.T) {
	for name, exempt := range map[string]func(b *memoryBench){
		"a gang, and holds are pauses": func(b *memoryBench) {
			b.source.set(func() { b.source.containers[1].Spec.Gang = "job" })
			b.await("it is left as it is", func() bool { return b.container("b").LeftAsItIs == state.ByGang })
		},
		"a person released it": func(b *memoryBench) {
			for _, ask := range []func(context.Context, string, string) error{b.Pause, b.Release} {
				if err := ask(b.Context(), "ann", "name-b"); err != nil {
					b.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newMemoryBench(t, false, nil)
			b.begin("a", 900)
			b.want(b.allocate("a", 900), memory.Grant)
			b.begin("b", 400)
			exempt(b)
			b.want(b.allocate("b", 200), memory.Grant)
			b.await("the device shows it", func() bool { return b.held("b") == 200 })
			b.want(b.allocate("b", 201), memory.Deny)
			d := b.decided("a denial", func(d decision.Decision) bool { return d.Result == decision.Denied })
			if d.ContainerID != "b" || d.Cause != string(allocator.Limit) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// With the breaker open nothing is refused, and nobody waits.
func TestBreakerGrants(t *testing.T) {
	b := newMemoryBench(t, false, func(o *actuator.Options) { o.Config.BreakerActions = 2 })
	b.begin("a", 400)
	b.run("c", "d", "e", "f")
	b.send(contention(webhook.Firing))
	b.await("it is open", func() bool { return b.State().Breaker != "" })
	b.want(b.allocate("a", 500), memory.Grant)
}

// Without facts nothing is refused, and nobody waits.
func TestBlindnessGrants(t *testing.T) {
	b := newMemoryBench(t, false, nil)
	b.begin("a", 800)
	b.begin("b", 800)
	b.want(b.allocate("a", 800), memory.Grant)
	first := b.allocate("b", 400)
	b.still(first, "b")
	b.source.set(func() { b.source.health.DeviceUp = false })
	b.want(first, memory.Grant)
}

func TestTheEndLetsAllocationsGo(t *testing.T) {
	b := newMemoryBench(t, false, nil)
	b.begin("a", 800)
	b.begin("b", 800)
	b.want(b.allocate("a", 800), memory.Grant)
	first := b.allocate("b", 400)
	b.still(first, "b")
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	b.want(first, memory.Grant)
	if !b.guard.closed {
		t.Error("the guard is open")
	}
}

// One with a deadline gets the memory of one without, which comes back afterwards.
func TestSwapForADeadline(t *testing.T) {
	b := newMemoryBench(t, true, func(o *actuator.Options) {
		o.Config.Policy = "edf"
	})
	b.begin("a", 800)
	b.want(b.allocate("a", 800), memory.Grant)
	b.begin("b", 800)
	b.source.set(func() {
		b.source.tasks[1].Deadline = time.Now().Add(20 * time.Second)
		b.source.containers[1].Spec.Deadline, b.source.containers[1].Spec.Class = 20, task.ClassDeadline
	})
	first := b.allocate("b", 600)
	b.want(first, memory.Grant)
	d := b.decided("a swap", func(d decision.Decision) bool { return d.Kind == decision.SwapOut })
	if d.ContainerID != "a" || d.Result != decision.Done || d.Bytes != 800 || !strings.Contains(d.Reason, "its memory is for name-b") {
		t.Errorf("%+v", d)
	}
	b.await("the state says so", func() bool { return b.container("a").Swapped != "" })
	if c := b.container("a"); len(c.Memory) != 1 || c.Memory[0].Swapped != 800 || !strings.Contains(c.Waits, "swapped out") {
		t.Errorf("%+v", c)
	}
	b.end("b")
	b.await("a is back", func() bool { return b.held("a") == 800 && b.container("a").Swapped == "" })
	if n := testutil.ToFloat64(b.metrics.SwapBytes.WithLabelValues("swap-in")); n != 800 {
		t.Errorf("%v bytes swapped in", n)
	}
}

func TestWhatCannotBeSwappedStays(t *testing.T) {
	b := newMemoryBench(t, true, func(o *actuator.Options) {
		o.Config.Policy = "edf"
	})
	b.begin("stubborn", 800)
	b.want(b.allocate("stubborn", 800), memory.Grant)
	b.begin("b", 800)
	b.source.set(func() { b.source.tasks[1].Deadline = time.Now().Add(20 * time.Second) })
	first := b.allocate("b", 600)
	b.decided("why not", func(d decision.Decision) bool {
		return d.ContainerID == "stubborn" && strings.Contains(d.Error, "managed memory")
	})
	b.still(first, "b")
	b.end("stubborn")
	b.want(first, memory.Grant)
}

// press fills the card with a and b, and asks for room.
func (b *memoryBench) press() {
	b.begin("a", 500)
	b.begin("b", 520)
	b.want(b.allocate("a", 480), memory.Grant)
	b.want(b.allocate("b", 500), memory.Grant)
	b.send(alert(webhook.Firing, "GPUMemoryPressure", "relieve", "gpu", gpu0))
}

// byP3 is the policy that relieves a card.
func byP3(o *actuator.Options) { o.Config.Policy = "p3" }

// Whoever is stopped to relieve the memory gives it back where it can be swapped.
func TestRelieveSwaps(t *testing.T) {
	b := newMemoryBench(t, true, byP3)
	b.press()
	b.decided("a swap", func(d decision.Decision) bool {
		return d.Kind == decision.SwapOut && d.ContainerID == "b" && d.Result == decision.Done
	})
	b.end("a")
	b.await("b is back", func() bool { return b.held("b") == 500 })
}

// Without facts nobody can say for whom a container is out.
func TestBlindnessBringsBackWhatIsSwappedOut(t *testing.T) {
	b := newMemoryBench(t, true, func(o *actuator.Options) { byP3(o); o.HoldLease = 300 * time.Millisecond })
	b.press()
	b.await("b is out", func() bool { return b.container("b").Swapped != "" })
	b.source.set(func() { b.source.health.DeviceUp = false })
	b.await("b is back", func() bool { return b.held("b") == 500 && !b.isPaused("b") })
}

func TestTheEndBringsBackWhatIsSwappedOut(t *testing.T) {
	b := newMemoryBench(t, true, byP3)
	b.press()
	b.await("b is out", func() bool { return b.container("b").Swapped != "" })
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if b.held("b") != 500 || b.isPaused("b") {
		t.Error("b is still out")
	}
}

// Who cannot be brought back at the end is named, and stays on record.
func TestTheEndNamesWhatStaysSwappedOut(t *testing.T) {
	b := newMemoryBench(t, true, byP3)
	b.press()
	b.await("b is out", func() bool { return b.container("b").Swapped != "" })
	b.swapper.mu.Lock()
	b.swapper.fails = errors.New("the checkpoint cannot be read")
	b.swapper.mu.Unlock()
	b.stopFails = true
	err := b.stop()
	if !errors.Is(err, b.swapper.fails) || !strings.Contains(err.Error(), "name-b stays swapped out") || !strings.Contains(err.Error(), "the guardian keeps trying") {
		t.Errorf("it ends with: %v", err)
	}
	if out, _ := b.swapper.Swapped(); len(out) != 1 || out[0].ContainerID != "b" || !b.isPaused("b") {
		t.Errorf("on record: %+v", out)
	}
	d := b.decided("of the end", func(d decision.Decision) bool { return d.Kind == decision.SwapIn && d.Reason == "the actuator ends" })
	if d.ContainerID != "b" || d.Result != decision.Failed || d.Error != b.swapper.fails.Error() {
		t.Errorf("%+v", d)
	}
}

// A swap may take longer than all that is done at the end.
func TestTheEndWaitsForASwap(t *testing.T) {
	b := newMemoryBench(t, true, byP3)
	began, ends := make(chan struct{}), make(chan struct{})
	b.swapper.suspending = func(string) { close(began); <-ends }
	b.press()
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	var ended time.Time
	time.AfterFunc(time.Second, func() { ended = time.Now(); close(ends) })
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if had := b.swapper.until.Sub(ended); b.held("b") != 500 || b.isPaused("b") || had < 30*time.Second {
		t.Errorf("b holds %d; its return had %v", b.held("b"), had)
	}
}
