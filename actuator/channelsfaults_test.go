package actuator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm"
)

// TestProcessWithoutChannelsIsTriedAgain, by itself and without a word.
func TestProcessWithoutChannelsIsTriedAgain(t *testing.T) {
	v := newDivider(t, hourly)
	a := v.begin("a")
	b := v.begin("b", gpu0)
	v.awaitSlice(b, 100*time.Millisecond) // it stands as if a were there: a comes any moment
	finds := func() (n int) {
		for _, c := range v.Calls() {
			if c == "find" {
				n++
			}
		}
		return n
	}
	v.await("it is looked at again and again", func() bool { return finds() > 5 })
	v.AddGroup(a, gpu0)
	v.awaitSlice(a, 10*time.Second)
	late := false // a call took too long here: it is told, undone and made again
	all, _ := v.Decisions().Last(0)
	for _, d := range all {
		if d.Kind != decision.Order {
			continue
		}
		if !strings.Contains(d.Error, context.DeadlineExceeded.Error()) {
			t.Errorf("%+v", d)
		}
		late = true
	}
	if n := v.Changes(b); n != 1 && !late {
		t.Errorf("the other one was changed %d times", n)
	}
}

// TestFailingCallIsTriedAgain: others go on, and what came into effect all the same is undone.
func TestFailingCallIsTriedAgain(t *testing.T) {
	v := newDivider(t, hourly)
	v.fail(101, errors.New("the driver refuses"))
	a, b, c := v.begin("a", gpu0), v.begin("b", gpu0), v.begin("c", gpu0)
	d := v.decided("it failed", func(d decision.Decision) bool { return d.Kind == decision.Order && d.ContainerID == "a" })
	if d.Result != decision.Failed || !strings.Contains(d.Error, "the driver refuses") {
		t.Errorf("%+v", d)
	}
	v.awaitSlice(c, 1365*time.Microsecond) // beside one that cannot be acted on
	v.awaitSlice(b, 2390*time.Microsecond)
	v.fail(101, nil)
	v.awaitSlice(a, 10*time.Second)
	v.awaitSlice(b, 100*time.Millisecond)
	v.awaitSlice(c, 10*time.Millisecond)
	if err := v.stop(); err != nil {
		t.Fatal(err)
	}
	v.awaitOwn(a, b, c)
}

// TestHangingCallDelaysItsOwnGPUOnly, and the loop not at all.
func TestHangingCallDelaysItsOwnGPUOnly(t *testing.T) {
	v := newDivider(t, nil)
	v.hangs[101] = true
	free := sync.OnceFunc(func() { close(v.freed) })
	t.Cleanup(free)
	v.source.set(func() { v.source.gpus = append(v.source.gpus, task.GPU{UUID: gpu1}) })
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.await("it hangs", func() bool { return v.wasCalled(a.PID) })
	c, d := v.process(201, gpu1), v.process(202, gpu1)
	v.source.set(func() {
		for i, id := range []string{"c", "d"} {
			v.source.containers = append(v.source.containers, task.Container{ID: id, Name: "name-" + id, Spec: task.Spec{Managed: true}})
			v.source.tasks = append(v.source.tasks, task.Task{ID: "task-" + id, PID: 201 + i, ContainerID: id, GPUs: []string{gpu1},
				State: task.Running, Start: task.Mark{Time: epoch.Add(time.Duration(i) * time.Second)}})
		}
	})
	v.awaitSlice(c, 10*time.Second)
	v.awaitSlice(d, 100*time.Millisecond)
	if v.slices(a, 10*time.Second) {
		t.Error("nothing hung")
	}
	v.decided("it failed", func(d decision.Decision) bool { return d.Kind == decision.Order && d.ContainerID == "a" })
	free()
	v.awaitSlice(a, 10*time.Second)
	v.awaitSlice(b, 100*time.Millisecond)
}

// TestPIDUsedAgain: the new process has a place of its own, and nobody takes it for the old one.
func TestPIDUsedAgain(t *testing.T) {
	v := newDivider(t, nil)
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.awaitSlice(a, 10*time.Second)
	v.awaitSlice(b, 100*time.Millisecond)
	v.kill(b)
	again := v.process(b.PID, gpu0)
	v.source.set(func() { v.source.tasks[1].ID = "again" })
	v.awaitSlice(again, 100*time.Millisecond)
	if wrong := v.Wrong(); len(wrong) > 0 {
		t.Errorf("%v", wrong)
	}
	if err := v.stop(); err != nil {
		t.Fatal(err)
	}
	v.awaitOwn(a, again)
	v.awaitNothingOnRecord()
}

// TestWhoHasEndedIsNotTriedAgain though the exporter still lists it.
func TestWhoHasEndedIsNotTriedAgain(t *testing.T) {
	v := newDivider(t, nil)
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.awaitSlice(a, 10*time.Second)
	v.SetState(b, channels.Exiting)
	v.source.set(func() { v.source.tasks[0].Start.Time = v.source.tasks[1].Start.Time.Add(time.Second) })
	v.awaitOwn(a) // alone: the other one is not there any more
	v.kill(b)
	v.source.remove("b")
	v.awaitNothingOnRecord()
	if wrong := v.Wrong(); len(wrong) > 0 {
		t.Errorf("%v", wrong)
	}
}

// TestTurnsBesideAServer: those beside a short deadline are off in turns, never for longer than
// a second, and nobody is off afterwards.
func TestTurnsBesideAServer(t *testing.T) {
	v := newDivider(t, nil)
	s, a, b := v.begin("s", gpu0), v.begin("a", gpu0), v.begin("b", gpu0)
	told := map[string]bool{} // whose state said why they were off
	last, step := time.Now(), 5*time.Millisecond
	busy := func() {
		step, last = max(step, time.Since(last)), time.Now() // on a busy machine a step takes longer than a tick
		v.source.set(func() {
			v.source.containers[0].Spec.Release, v.source.containers[0].Spec.Deadline = task.ReleaseBusy, task.Seconds(0.02)
			for i, p := range []rm.Process{a, b} {
				v.source.containers[i+1].SMUtilization = map[string]float64{gpu0: 0.48}
				v.source.containers[i+1].Processes = []task.Process{{PID: p.PID, GPUs: []string{gpu0}}}
			}
		})
		for _, c := range v.state().Containers {
			if c.Off && strings.HasPrefix(c.Order, "off the GPU for ") {
				told[c.ID] = true
			}
		}
	}
	for _, p := range []rm.Process{a, b, a} {
		v.await("it is its turn to be off", func() bool { busy(); return v.Off(p) == v.Channels(p) })
		v.await("it is on again", func() bool { busy(); return v.Off(p) == 0 })
	}
	v.await("the state says why", func() bool { busy(); return told["a"] && told["b"] })
	if v.Off(s) > 0 {
		t.Error("the server is off")
	}
	v.source.end("s")
	v.await("all are on", func() bool { busy(); return v.Off(a)+v.Off(b) == 0 && v.slices(a, 10*time.Second) })
	if longest := v.longestOff(); longest == 0 || longest > time.Second+step {
		t.Errorf("one was off for %v, a step took up to %v", longest, step)
	}
}

// TestNewContextsAndSlicesAreFound: of a process that stands already.
func TestNewContextsAndSlicesAreFound(t *testing.T) {
	v := newDivider(t, hourly)
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.awaitSlice(a, 10*time.Second)
	v.awaitSlice(b, 100*time.Millisecond)
	v.AddGroup(a, gpu0)
	v.awaitSlice(a, 10*time.Second)
	v.Own(b, 7*time.Millisecond)
	v.awaitSlice(b, 100*time.Millisecond)
	v.decided("it is told", func(d decision.Decision) bool {
		return d.Kind == decision.Order && d.ContainerID == "b" && d.Result == decision.Ignored
	})
	if err := v.stop(); err != nil {
		t.Fatal(err)
	}
	v.awaitOwn(a)
	v.awaitSlice(b, 7*time.Millisecond)
}

// TestAllIsItsOwnBeforeACheckpoint: it waits for what the channels do.
func TestAllIsItsOwnBeforeACheckpoint(t *testing.T) {
	v := benchless(t)
	b := newMemoryBench(t, true, func(o *actuator.Options) { v.options(o); o.Config.Policy = "edf" })
	v.bench = b.bench
	first := v.process(101, gpu0)
	v.process(102, gpu0)
	var found atomic.Value
	b.swapper.suspending = func(string) { found.Store(v.Slices(first)) }
	b.begin("a", 800)
	b.want(b.allocate("a", 800), memory.Grant)
	b.begin("b", 800)
	v.awaitSlice(first, 10*time.Second)
	b.source.set(func() {
		b.source.tasks[1].Deadline = time.Now().Add(20 * time.Second)
		b.source.containers[1].Spec.Deadline, b.source.containers[1].Spec.Class = 20, task.ClassDeadline
	})
	b.want(b.allocate("b", 600), memory.Grant)
	if is, _ := found.Load().([]time.Duration); !slices.Equal(is, []time.Duration{channelstest.OwnSlice}) {
		t.Errorf("its slices were %v when it was swapped out", is)
	}
}
