package actuator_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/guardian/watch"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/statefolder"
)

// An actuator that starts switches on whom a former one left off its GPU, with no guardian. Also one of version 0.2,
// which named the folder of its record by the path of the state folder.
func TestStartLetsChannelsOn(t *testing.T) {
	for name, of := range map[string]func(stateDir string) (statefolder.ID, error){
		"by this version": statefolder.Of,
		"by version 0.2":  func(dir string) (statefolder.ID, error) { return statefolder.ByPath(dir), nil },
	} {
		t.Run(name, func(t *testing.T) { startLetsChannelsOn(t, of) })
	}
}

func startLetsChannelsOn(t *testing.T, of func(stateDir string) (statefolder.ID, error)) {
	m, run := channelstest.NewMachine(), t.TempDir()
	stat, _ := proc.ReadStat("/proc", os.Getpid())
	p := rm.Process{PID: os.Getpid(), Start: stat.Start}
	m.Adopt(p, gpu0)
	with := func(o *actuator.Options) { o.Mechanisms.Channels, o.RunDir = m, run }
	b := newBench(t, with)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	state, err := of(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	former, err := channels.New(channels.Options{Driver: m, Dir: channels.Folder(run, state), Deadline: time.Minute, MaxOff: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := former.Apply(t.Context(), channels.Target{Processes: []rm.Process{p}}, channels.Standing{Off: true}); err != nil || m.Off(p) == 0 {
		t.Fatal(err)
	}
	b.restart(with)
	b.await("its channels are on", func() bool { return m.Off(p) == 0 })
	b.await("nothing is on record", func() bool { n, err := former.Pending(); return n == 0 && err == nil })
}

// TestFirstGetsTheLongSlice: nobody is paused, the order is told, and who is alone has its own.
func TestFirstGetsTheLongSlice(t *testing.T) {
	v := newDivider(t, func(o *actuator.Options) { o.Config.Arbitrate = config.Auto })
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.send(contention(webhook.Firing))
	v.awaitSlice(a, 10*time.Second)
	v.awaitSlice(b, 100*time.Millisecond)
	v.await("the state says so", func() bool {
		s := v.state()
		return slices.Equal(s.GPUs[0].Order, []string{"name-a", "name-b"}) &&
			s.Containers[1].Order == "second in the queue, slice 100 ms" && s.Containers[1].SliceSeconds == 0.1 && s.Hold == config.HoldChannels
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
	var now clock
	var guardian *journal.Lock
	watched := func(o *actuator.Options) {
		var err error
		if guardian, err = journal.TryLock(journal.GuardianLock(o.StateDir)); err != nil {
			t.Fatal(err)
		}
		o.Guardian = watch.Require
	}
	for name, tt := range map[string]struct {
		with func(*actuator.Options)
		do   func(v *divider)
	}{
		"its task ended": {nil, func(v *divider) { v.source.end("a"); v.source.end("b") }},
		"the containers are gone from the list though they live": {nil, func(v *divider) {
			v.source.set(func() { v.source.containers, v.source.tasks = nil, nil })
		}},
		"the exporter cannot read the GPUs": {nil, func(v *divider) { v.source.set(func() { v.source.health.DeviceUp = false }) }},
		"the exporter is gone": {nil, func(v *divider) {
			v.source.set(func() { v.source.err = errors.New("it is gone") })
			now.set(time.Minute)
		}},
		"the actuator ends": {nil, func(v *divider) {
			if err := v.stop(); err != nil {
				t.Error(err)
			}
		}},
		"no guardian watches": {watched, func(*divider) { guardian.Unlock(); now.set(2 * time.Second) }},
		"the breaker opens": {func(o *actuator.Options) { o.Config.BreakerActions = 1 }, func(v *divider) {
			v.source.set(func() {
				v.source.containers = append(v.source.containers, task.Container{ID: "c", Name: "c", Spec: task.Spec{Managed: true}})
			})
			v.engine.Run("c")
			v.await("c is known", func() bool { return len(v.state().Containers) == 3 })
			_ = v.Pause(t.Context(), "somebody", "c")
			v.awaitPaused("c", "c")
			_ = v.Release(t.Context(), "somebody", "c")
			v.await("hands off", func() bool { return v.state().Breaker != "" })
		}},
		"another policy pauses": {func(o *actuator.Options) {
			o.Load = func() (config.Config, error) { return config.Config{Policy: "p3", Arbitrate: config.Never}, nil }
		}, func(v *divider) {
			if err := v.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			now.set(0)
			v := newDivider(t, func(o *actuator.Options) {
				o.Now = now.now
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

// TestOrderOutlivesTheContention: a server's next request finds it, half a minute long.
func TestOrderOutlivesTheContention(t *testing.T) {
	var now clock
	v := newDivider(t, func(o *actuator.Options) {
		o.Config.Arbitrate, o.Config.Policy = config.Auto, "edf"
		o.Now = now.now
	})
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.source.set(func() {
		v.source.containers[0].Spec.Deadline, v.source.containers[0].Spec.Release = 3600, task.ReleaseBusy
		v.source.tasks[0].Deadline = time.Now().Add(time.Hour) // it is not late
		v.source.containers[0].Processes = []task.Process{{PID: a.PID, GPUs: []string{gpu0}}}
	})
	v.send(contention(webhook.Firing))
	long := func() bool { is := v.Slices(a); return len(is) == 1 && is[0] > 10*time.Millisecond }
	v.await("its slice is long", long)
	v.source.end("a") // its request is over
	v.send(contention(webhook.Resolved))
	v.decided("the contention is over", func(d decision.Decision) bool { return strings.Contains(d.Reason, "resolved and confirmed") })
	looked := v.state().SnapshotSequence
	v.source.set(func() {})
	v.await("it looks again", func() bool { return v.state().SnapshotSequence > looked })
	if !long() {
		t.Errorf("its slices are %v", v.Slices(a))
	}
	now.set(time.Minute)
	v.awaitOwn(a, b)
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

// TestReleasedKeepsItsPartBesideAServer: it counts as a container without a label, so that all others together have no
// more than by default, and it is not off in turn, for as long as the release holds.
func TestReleasedKeepsItsPartBesideAServer(t *testing.T) {
	v := newDivider(t, nil)
	s, a, b := v.begin("s", gpu0), v.begin("a", gpu0), v.begin("b", gpu0)
	busy := func() {
		v.source.set(func() {
			v.source.containers[0].Spec.Release, v.source.containers[0].Spec.Deadline = task.ReleaseBusy, task.Seconds(0.02)
			for i, p := range []rm.Process{s, a, b} {
				v.source.containers[i].SMUtilization = map[string]float64{gpu0: []float64{0.02, 0.48, 0.48}[i]}
				v.source.containers[i].Processes = []task.Process{{PID: p.PID, GPUs: []string{gpu0}}}
			}
		})
	}
	first := func() bool { busy(); return v.Slices(s)[0] > channelstest.OwnSlice }
	v.await("requests come first", first)
	v.await("it is off in turn", func() bool { busy(); return v.Off(a) > 0 })
	if err := v.Release(t.Context(), "somebody", "a"); err != nil {
		t.Fatal(err)
	}
	modest := func() bool { return v.Off(a) == 0 && v.Slices(s)[0]+v.Slices(b)[0] <= 2*channelstest.OwnSlice }
	v.await("all have their part", func() bool {
		busy()
		return modest() && v.slices(a, channelstest.OwnSlice) && v.Slices(b)[0] < v.Slices(s)[0]
	})
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond; { // longer than a turn
		if busy(); !modest() {
			t.Fatalf("off %d; slices %v and %v beside it", v.Off(a), v.Slices(s), v.Slices(b))
		}
		time.Sleep(5 * time.Millisecond) // as often as it steps; the actuator needs the processor too
	}
	v.await("it says why", func() bool { return strings.Contains(v.state().Containers[0].Order, "must be left alone") })
	v.source.end("a") // and with its task the release
	v.await("requests come first again", first)
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
		v.source.containers = []task.Container{
			{ID: "unlabelled", Processes: []task.Process{{PID: 201, GPUs: []string{gpu0}}}},
			{ID: "never", Spec: task.Spec{Managed: true, NeverPause: true}, Processes: []task.Process{{PID: 202, GPUs: []string{gpu0}}}},
			{ID: "several", Spec: task.Spec{Managed: true}, Processes: []task.Process{{PID: 203, GPUs: []string{gpu0}}, {PID: 204, GPUs: []string{gpu1}}}},
		}
		for _, c := range v.source.containers {
			for _, p := range c.Processes {
				v.source.tasks = append(v.source.tasks, task.Task{ID: "task-" + c.ID, PID: p.PID, ContainerID: c.ID, GPUs: p.GPUs, State: task.Running})
			}
		}
	})
	a, b := v.begin("a", gpu0), v.begin("b", gpu0)
	v.awaitSlice(b, 1365*time.Microsecond)
	v.awaitSlice(a, 2390*time.Microsecond)
	v.AddGroup(a, gpu0)
	v.awaitSlice(a, 2390*time.Microsecond) // by a later call: all calls of the first order have ended
	v.calledOnly()
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
		"hold=pause": func(o *actuator.Options) { o.Mechanisms.Hold, o.Mechanisms.NewChannels = config.HoldPause, nil },
	} {
		t.Run(name, func(t *testing.T) {
			v := newDivider(t, with)
			v.source.set(func() { v.source.gpus[0].Utilization = 1 })
			v.begin("a", gpu0)
			v.begin("b", gpu0)
			v.awaitPaused("b", "a", "b")
			v.calledOnly("pause b")
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
	v.calledOnly()
	v.awaitOwn(a, b)
	if v.wasCalled(a.PID) || v.wasCalled(b.PID) {
		t.Error("something was called")
	}
}

// TestDamagedRecordOfChannelsKeepsNobodyFromStarting: what lies in the place of the folder, or of
// a record, is put aside, and told.
func TestDamagedRecordOfChannelsKeepsNobodyFromStarting(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"the folder is a file": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.WriteFile(dir, nil, 0o600))
		},
		"the folder above is a file": func(dir string) error { return os.WriteFile(filepath.Dir(dir), nil, 0o600) },
		"a record is a folder": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "999999999-1.json", "in"), 0o700) // of a process that has ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newDivider(t, nil)
			if err := v.stop(); err != nil {
				t.Fatal(err)
			}
			if err := damage(recordFolder(v.run, v.dir)); err != nil {
				t.Fatal(err)
			}
			v.restart(v.options)
			a, b := v.begin("a", gpu0), v.begin("b", gpu0)
			v.awaitSlice(a, 10*time.Second)
			v.awaitSlice(b, 100*time.Millisecond)
			if s := v.state(); len(s.PutAside) != 1 {
				t.Errorf("told %v", s.PutAside)
			}
			if _, metrics := v.get("/metrics"); !strings.Contains(metrics, "laxity_actuator_files_put_aside 1") {
				t.Error("no metric")
			}
		})
	}
}
