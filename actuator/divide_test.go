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
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm"
)

const gpu1 = "GPU-1"

// driver is a machine whose calls for some processes fail or hang.
type driver struct {
	*channelstest.Machine
	mu     sync.Mutex
	called map[int]bool  // by PID, whatever the call
	fails  map[int]error // setting a slice comes into effect and fails all the same
	hangs  map[int]bool
	freed  chan struct{} // closed: nothing hangs any more
}

func (d *driver) note(pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.called[pid] = true
}

func (d *driver) wasCalled(pid int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.called[pid]
}

func (d *driver) fail(pid int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails[pid] = err
}

func (d *driver) Find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	d.note(p.PID)
	return d.Machine.Find(ctx, p)
}

func (d *driver) Slice(ctx context.Context, g rm.Group) (time.Duration, error) {
	d.note(g.PID)
	return d.Machine.Slice(ctx, g)
}

func (d *driver) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	for _, g := range groups {
		d.note(g.PID)
	}
	return d.Machine.Switch(ctx, groups, on)
}

func (d *driver) SetSlice(ctx context.Context, g rm.Group, slice time.Duration) error {
	d.note(g.PID)
	d.mu.Lock()
	err, hangs := d.fails[g.PID], d.hangs[g.PID]
	d.mu.Unlock()
	if hangs {
		<-d.freed
	}
	return errors.Join(d.Machine.SetSlice(ctx, g, slice), err)
}

// divider is a bench whose actuator divides the time of GPUs, with processes in memory.
type divider struct {
	*bench
	*driver
	run  string
	mu   sync.Mutex
	live map[int]rm.Process
}

// benchless is one whose bench is still to be made, with options.
func benchless(t *testing.T) *divider {
	return &divider{run: t.TempDir(), live: map[int]rm.Process{}, driver: &driver{
		Machine: channelstest.NewMachine(), called: map[int]bool{}, fails: map[int]error{}, hangs: map[int]bool{}, freed: make(chan struct{}),
	}}
}

func newDivider(t *testing.T, change func(*actuator.Options)) *divider {
	t.Helper()
	v := benchless(t)
	v.bench = newBench(t, func(o *actuator.Options) {
		v.options(o)
		if change != nil {
			change(o)
		}
	})
	return v
}

func (v *divider) options(o *actuator.Options) {
	o.Channels, o.RunDir, o.Config.Arbitrate = v.driver, v.run, actuator.Always
	dir := o.StateDir
	o.NewChannels = func() (actuator.Channels, error) {
		return channels.New(channels.Options{Driver: v.driver, Dir: channels.Folder(v.run, dir), State: v.State})
	}
	o.StartOf = func(pid int) (uint64, bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		p, ok := v.live[pid]
		return p.Start, ok
	}
}

// State is that of the bench, not the machine's.
func (v *divider) State(p rm.Process) (channels.State, error) { return v.driver.State(p) }

// state is the actuator's.
func (v *divider) state() *actuator.State { return v.bench.State() }

// process starts one with this PID and a channel group on each of these GPUs.
func (v *divider) process(pid int, gpus ...string) rm.Process {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live[pid] = v.Start(pid, gpus...)
	return v.live[pid]
}

// kill ends a process.
func (v *divider) kill(p rm.Process) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.live, p.PID)
	v.Kill(p)
}

// begin starts a container with one process and one task on GPU 0.
func (v *divider) begin(id string, gpus ...string) rm.Process {
	p := v.process(101+len(v.source.boxes), gpus...)
	v.engine.Run(id)
	v.source.start(id)
	return p
}

func (v *divider) slices(p rm.Process, want time.Duration) bool {
	is := v.Slices(p)
	return len(is) > 0 && !slices.ContainsFunc(is, func(d time.Duration) bool { return d != want })
}

func (v *divider) awaitSlice(p rm.Process, want time.Duration) {
	v.Helper()
	v.await("its slice is "+want.String(), func() bool { return v.slices(p, want) })
}

func (v *divider) awaitOwn(all ...rm.Process) {
	v.Helper()
	for _, p := range all {
		v.awaitSlice(p, channelstest.OwnSlice)
	}
}

// awaitNothingOnRecord: whoever looks at the folder alone finds nothing to undo.
func (v *divider) awaitNothingOnRecord() {
	v.Helper()
	e, err := channels.New(channels.Options{Driver: v.driver, Dir: channels.Folder(v.run, v.dir), State: v.State})
	if err != nil {
		v.Fatal(err)
	}
	v.await("nothing is on record", func() bool { n, err := e.Pending(); return n == 0 && err == nil })
}

// TestFirstGetsTheLongSlice: nobody is paused, the order is told, and who is alone has its own.
func TestFirstGetsTheLongSlice(t *testing.T) {
	v := newDivider(t, func(o *actuator.Options) { o.Config.Arbitrate = actuator.Auto })
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.send(contention(webhook.Firing))
	v.awaitSlice(a, 10*time.Second)
	v.awaitSlice(b, 100*time.Millisecond)
	v.await("the state says so", func() bool {
		s := v.state()
		return slices.Equal(s.GPUs[0].Order, []string{"name-a", "name-b"}) &&
			s.Containers[1].Order == "second in line, slice 100 ms" && s.Containers[1].SliceSeconds == 0.1 && s.Hold == actuator.HoldChannels
	})
	v.source.end("a")
	v.awaitOwn(a, b)
	v.awaitNothingOnRecord()
	if calls := v.engine.Calls(); len(calls) > 0 {
		t.Errorf("the engine was asked for %v", calls)
	}
}

// TestSlicesArePutBack: whatever the reason for which nobody is first any more.
func TestSlicesArePutBack(t *testing.T) {
	var ahead atomic.Int64
	var guardian *journal.Lock
	watched := func(o *actuator.Options) {
		var err error
		if guardian, err = journal.TryLock(journal.GuardianLock(o.StateDir)); err != nil {
			t.Fatal(err)
		}
		o.Guardian = actuator.Require
	}
	for name, tt := range map[string]struct {
		with func(*actuator.Options)
		do   func(v *divider)
	}{
		"its task ended": {nil, func(v *divider) { v.source.end("a"); v.source.end("b") }},
		"the containers are gone from the list though they live": {nil, func(v *divider) {
			v.source.set(func() { v.source.boxes, v.source.tasks = nil, nil })
		}},
		"the exporter cannot read the GPUs": {nil, func(v *divider) { v.source.set(func() { v.source.health.DeviceUp = false }) }},
		"the exporter is gone": {nil, func(v *divider) {
			v.source.set(func() { v.source.err = errors.New("it is gone") })
			ahead.Store(int64(time.Minute))
		}},
		"the actuator ends": {nil, func(v *divider) {
			if err := v.stop(); err != nil {
				t.Error(err)
			}
		}},
		"no guardian watches": {watched, func(*divider) { guardian.Unlock(); ahead.Store(int64(2 * time.Second)) }},
		"the breaker opens": {func(o *actuator.Options) { o.Config.BreakerActions = 1 }, func(v *divider) {
			v.source.set(func() {
				v.source.boxes = append(v.source.boxes, task.Container{ID: "c", Name: "c", Spec: task.Spec{Managed: true}})
			})
			v.engine.Run("c")
			v.await("c is known", func() bool { return len(v.state().Containers) == 3 })
			_ = v.Pause(t.Context(), "somebody", "c")
			v.awaitPaused("c", "c")
			_ = v.Release(t.Context(), "somebody", "c")
			v.await("hands off", func() bool { return v.state().Breaker != "" })
		}},
		"another policy pauses": {func(o *actuator.Options) {
			o.Load = func() (actuator.Config, error) { return actuator.Config{Policy: "p3", Arbitrate: actuator.Never}, nil }
		}, func(v *divider) {
			if err := v.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ahead.Store(0)
			v := newDivider(t, func(o *actuator.Options) {
				o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				if tt.with != nil {
					tt.with(o)
				}
			})
			a, b := v.begin("a", gpu0), v.begin("b", gpu0)
			v.awaitSlice(a, 10*time.Second)
			v.awaitSlice(b, 100*time.Millisecond)
			tt.do(v)
			v.awaitOwn(a, b)
			v.awaitNothingOnRecord()
			if wrong := v.Wrong(); len(wrong) > 0 {
				t.Error(wrong)
			}
		})
	}
}

// TestReleasedIsLeftAsItIs for as long as its present tasks last.
func TestReleasedIsLeftAsItIs(t *testing.T) {
	v := newDivider(t, nil)
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.await("it is known to be first", func() bool { s := v.state().Containers; return len(s) > 1 && s[0].SliceSeconds == 10 })
	if err := v.Release(t.Context(), "somebody", "a"); err != nil {
		t.Fatal(err)
	}
	v.awaitOwn(a, b) // b alone is ours, and has no more than by default beside a
	v.await("the state says so", func() bool { return v.state().Containers[0].Order == "" && v.state().Containers[1].Order != "" })
	v.source.end("a")
	v.await("the exemption ends", func() bool { return len(v.state().Exemptions) == 0 })
	v.source.set(func() {
		v.source.tasks = append(v.source.tasks, task.Task{ID: "second", PID: a.PID, ContainerID: "a", Container: "name-a",
			GPUs: []string{gpu0}, State: task.Running, Start: task.Mark{Time: time.Now()}})
	})
	v.awaitSlice(b, 10*time.Second)
	v.awaitSlice(a, 100*time.Millisecond)
}

// hourly: nothing happens but by events and the keeper's own timer.
func hourly(o *actuator.Options) { o.Tick = time.Hour }

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
	if n := v.Changes(b); n != 1 {
		t.Errorf("the other one was changed %d times", n)
	}
	all, _ := v.Decisions().Last(0)
	for _, d := range all {
		if d.Kind == decision.Order {
			t.Errorf("%+v", d)
		}
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
	v.awaitOwn(b)
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
			v.source.boxes = append(v.source.boxes, task.Container{ID: id, Name: "name-" + id, Spec: task.Spec{Managed: true}})
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

// TestOthersAreNeverTouched: no call is made for who has no label, says never, or is on
// several GPUs.
func TestOthersAreNeverTouched(t *testing.T) {
	v := newDivider(t, nil)
	v.source.set(func() { v.source.gpus = append(v.source.gpus, task.GPU{UUID: gpu1}) })
	v.process(201, gpu0)
	v.process(202, gpu0)
	v.process(203, gpu0)
	v.process(204, gpu1)
	v.source.set(func() {
		v.source.boxes = []task.Container{
			{ID: "unlabelled", Processes: []task.Process{{PID: 201, GPUs: []string{gpu0}}}},
			{ID: "never", Spec: task.Spec{Managed: true, NeverPause: true}, Processes: []task.Process{{PID: 202, GPUs: []string{gpu0}}}},
			{ID: "several", Spec: task.Spec{Managed: true}, Processes: []task.Process{{PID: 203, GPUs: []string{gpu0}}, {PID: 204, GPUs: []string{gpu1}}}},
		}
		for _, c := range v.source.boxes {
			for _, p := range c.Processes {
				v.source.tasks = append(v.source.tasks, task.Task{ID: "task-" + c.ID, PID: p.PID, ContainerID: c.ID, GPUs: p.GPUs, State: task.Running})
			}
		}
	})
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.awaitSlice(b, 1365*time.Microsecond)
	v.awaitOwn(a)
	for pid := 201; pid < 205; pid++ {
		if v.wasCalled(pid) {
			t.Errorf("process %d was touched", pid)
		}
	}
}

// TestWhoPausesDoesNotDivide: the paper's policy, and --hold=pause.
func TestWhoPausesDoesNotDivide(t *testing.T) {
	for name, with := range map[string]func(*actuator.Options){
		"p3":         func(o *actuator.Options) { o.Config.Policy = "p3" },
		"hold=pause": func(o *actuator.Options) { o.Hold, o.NewChannels = actuator.HoldPause, nil },
	} {
		t.Run(name, func(t *testing.T) {
			v := newDivider(t, with)
			v.source.set(func() { v.source.gpus[0].Utilization = 1 })
			v.begin("a", gpu0)
			v.begin("b", gpu0)
			v.awaitPaused("b", "a", "b")
			if calls := v.Calls(); len(calls) > 0 {
				t.Errorf("%v", calls)
			}
		})
	}
}

func TestDryRunDividesNothing(t *testing.T) {
	v := newDivider(t, func(o *actuator.Options) { o.DryRun = true })
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.await("it is planned", func() bool { return len(v.state().Containers) == 2 && v.state().Containers[1].Order != "" })
	v.awaitOwn(a, b)
	if v.wasCalled(a.PID) || v.wasCalled(b.PID) {
		t.Error("something was called")
	}
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
	busy := func() {
		v.source.set(func() {
			v.source.boxes[0].Spec.Release, v.source.boxes[0].Spec.Deadline = task.ReleaseBusy, task.Seconds(0.02)
			for i, p := range []rm.Process{a, b} {
				v.source.boxes[i+1].SMUtilization = map[string]float64{gpu0: 0.48}
				v.source.boxes[i+1].Processes = []task.Process{{PID: p.PID, GPUs: []string{gpu0}}}
			}
		})
	}
	for _, p := range []rm.Process{a, b, a} {
		v.await("it is its turn to be off", func() bool { busy(); return v.Off(p) == v.Channels(p) })
		v.await("the state says why", func() bool {
			busy()
			c := v.state().Containers[p.PID-s.PID]
			return c.Off && strings.HasPrefix(c.Order, "off the GPU for ") || v.Off(p) == 0
		})
		v.await("it is on again", func() bool { busy(); return v.Off(p) == 0 })
	}
	if v.Off(s) > 0 {
		t.Error("the server is off")
	}
	v.source.end("s")
	v.await("all are on", func() bool { busy(); return v.Off(a)+v.Off(b) == 0 && v.slices(a, 10*time.Second) })
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
		b.source.boxes[1].Spec.Deadline, b.source.boxes[1].Spec.Class = 20, task.ClassDeadline
	})
	b.want(b.allocate("b", 600), memory.Grant)
	if is, _ := found.Load().([]time.Duration); !slices.Equal(is, []time.Duration{channelstest.OwnSlice}) {
		t.Errorf("its slices were %v when it was swapped out", is)
	}
}
