package core_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// duet is a core that sees a gang of two containers, one on each GPU, beside two trainers of the
// first GPU.
type duet struct {
	*testing.T
	core  *core.Core
	now   time.Time
	snap  task.Snapshot
	calls []core.Change
	holds []core.Action
	gang  string // of the two, if any
	// answers say how changes of a process end.
	answers map[int]core.ChangeResult
}

func newDuet(t *testing.T, change func(*core.Options, []task.Container), more ...func(*task.Snapshot)) *duet {
	d := &duet{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	o := core.Options{Node: "n1", Config: config.Config{Policy: "edf", Arbitrate: config.Always}.WithDefaults(), Leases: lease.New(), History: estimate.New(),
		Divides: true, AsOne: true, MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour}
	d.snap = task.Snapshot{Run: "r", Health: task.Health{DeviceUp: true, EngineUp: true}}
	for i, g := range worldGPUs {
		d.snap.GPUs = append(d.snap.GPUs, task.GPU{UUID: g, Index: i, MemoryTotal: 100, Utilization: 1})
	}
	spec := task.Spec{Managed: true, Class: task.ClassBatch, Release: task.ReleaseProcess}
	for i, c := range []struct{ id, gpu, gang string }{{"a", "GPU-0", "job"}, {"b", "GPU-1", "job"}, {"trainer", "GPU-0", ""}, {"late", "GPU-0", ""}} {
		spec.Gang = c.gang
		d.snap.Containers = append(d.snap.Containers, task.Container{ID: c.id, Name: c.id, Spec: spec,
			Processes: []task.Process{{PID: 100 + i, GPUs: []string{c.gpu}}}, SMUtilization: map[string]float64{c.gpu: 0.5}})
		d.snap.Tasks = append(d.snap.Tasks, task.Task{ID: c.id, PID: 100 + i, Container: c.id, ContainerID: c.id, GPUs: []string{c.gpu},
			State: task.Running, Start: task.Mark{Time: d.now.Add(time.Duration(i) * time.Second)}, Deadline: d.now.Add(time.Duration(10+i) * time.Second)})
	}
	change(&o, d.snap.Containers)
	for _, f := range more {
		f(&d.snap)
	}
	d.gang = d.snap.Containers[0].Spec.Gang
	for i, c := range d.snap.Containers {
		if c.Spec.Deadline == 0 {
			d.snap.Tasks[i].Deadline = time.Time{}
		}
	}
	d.core = core.New(o, d.now)
	for range 20 {
		d.step()
	}
	return d
}

// step lets 200 ms pass: a snapshot, a plan, and its effects, which succeed but for those in answers.
func (d *duet) step() {
	d.now = d.now.Add(200 * time.Millisecond)
	s := d.snap
	s.Time, s.Sequence = d.now, uint64(d.now.UnixMilli())
	starts := map[int]uint64{}
	for _, t := range s.Tasks {
		starts[t.PID] = uint64(t.PID)
	}
	d.core.Snapshot(d.now, &s, starts)
	d.core.Step(d.now, core.Around{GuardianUp: true, MayHold: true})
	for e := d.core.Effects(); !e.Empty(); e = d.core.Effects() {
		for _, v := range e.Divide {
			d.calls = append(d.calls, v.Changes...)
			results := make([]core.ChangeResult, len(v.Changes))
			for i, c := range v.Changes {
				results[i] = d.answers[c.Process.PID]
			}
			d.core.Divided(d.now, v.GPU, results)
		}
		d.holds = append(d.holds, e.Actions...)
		for _, a := range e.Actions {
			d.core.Finished(d.now, core.Result{Action: a, Started: d.now, OnRecord: true})
		}
	}
}

func (d *duet) container(id string) state.Container {
	all := d.core.State().Containers
	return all[slices.IndexFunc(all, func(c state.Container) bool { return c.ID == id })]
}

// touched reports whether a change or a pause concerned a process or container of the gang.
func (d *duet) touched() bool {
	return slices.ContainsFunc(d.calls, func(c core.Change) bool {
		return c.Gang != nil || c.Process.PID == 100 || c.Process.PID == 101
	}) || slices.ContainsFunc(d.holds, func(a core.Action) bool { return a.ContainerID == "a" || a.ContainerID == "b" })
}

// urgent gives the last one a deadline: beside a gang that may not be held, and is greedy, only class batch gives way.
func urgent(c []task.Container) {
	last := &c[len(c)-1].Spec
	last.Class, last.Deadline = task.ClassDeadline, 600
}

// A gang that cannot be ordered as one is left as it is, all of it, and so is a client of MPS; both say why. The others are ordered.
func TestGangLeftAsItIs(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		cause     state.Cause
		change    func(*core.Options, []task.Container)
	}{
		{"the default mode", "ordered with --several-gpus=as-one only", state.ByGang, func(o *core.Options, _ []task.Container) { o.AsOne = false }},
		{"holds are pauses", "would not be paused and go on as one", state.ByGang, func(o *core.Options, c []task.Container) { o.Divides, o.AsOne = false, false; urgent(c) }},
		{"a policy that pauses", "would not be paused and go on as one", state.ByGang, func(o *core.Options, _ []task.Container) { o.Config.Policy = "p3" }},
		{"classes disagree", "laxity.class counts as batch on a, and as deadline on b", state.ByConflict, func(_ *core.Options, c []task.Container) { c[1].Spec.Class = task.ClassDeadline }},
		{"deadlines disagree", "laxity.deadline", state.ByConflict, func(_ *core.Options, c []task.Container) { c[0].Spec.Deadline, c[1].Spec.Deadline = 9, 5 }},
		{"shares disagree, holds are pauses", "laxity.share", state.ByConflict, func(o *core.Options, c []task.Container) { o.Divides, c[1].Spec.Share = false, 0.5; urgent(c) }},
		{"a member computes by MPS", "MPS server", state.ByMPS, func(_ *core.Options, c []task.Container) { c[1].Processes[0].MPS = true }},
		{"a member computes by MPS, holds are pauses", "MPS server", state.ByMPS, func(o *core.Options, c []task.Container) { o.Divides, c[0].Processes[0].MPS = false, true; urgent(c) }},
		{"two that are no gang compute by MPS", "it computes through an MPS server", state.ByMPS, func(_ *core.Options, c []task.Container) {
			for i := range 2 {
				c[i].Spec.Gang, c[i].Processes[0].MPS = "", true
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDuet(t, tc.change)
			for _, id := range []string{"a", "b"} {
				if c := d.container(id); !strings.HasPrefix(c.Order, "left as it is: ") || !strings.Contains(c.Order, tc.why) || c.Gang != d.gang || c.LeftAsItIs != tc.cause || c.Waits != "" {
					t.Errorf("%s: %+v", id, c)
				}
			}
			if d.touched() {
				t.Errorf("it was touched: %+v %+v", d.calls, d.holds)
			}
			if len(d.calls)+len(d.holds) == 0 {
				t.Error("nobody is ordered: nothing was tested")
			}
		})
	}
}

// What keeps one member from being ordered keeps the whole gang from it.
func TestGangWithAnExemptMember(t *testing.T) {
	d := newDuet(t, func(_ *core.Options, c []task.Container) { c[0].Spec.NeverPause, c[1].Spec.NeverPause = true, true })
	if d.touched() {
		t.Errorf("laxity.pause=never: %+v", d.calls)
	}
	for i := range 2 {
		d = newDuet(t, func(_ *core.Options, c []task.Container) {
			c[i].Spec.Managed = false // as one that is not on the allow-list
			for _, j := range []int{0, 1, 3} {
				c[j].Spec.Deadline, c[j].Spec.Class = 20, task.ClassDeadline
			}
		})
		if d.touched() {
			t.Errorf("number %d is not on the allow-list: %+v", i, d.calls)
		}
		if len(d.calls) == 0 {
			t.Error("nobody is ordered: nothing was tested")
		}
	}
}

// A gang has one place on each of its GPUs, under its name, and each change is of all of it.
func TestGangIsOrderedAsOne(t *testing.T) {
	d := newDuet(t, func(_ *core.Options, c []task.Container) {
		for _, i := range []int{0, 1, 3} { // with deadlines before the trainer
			c[i].Spec.Deadline, c[i].Spec.Class = 20, task.ClassDeadline
		}
	})
	gang := 0
	for _, c := range d.calls {
		if c.Process.PID == 100 || c.Process.PID == 101 {
			t.Errorf("a part of the gang is changed: %+v", c)
		}
		if c.Gang == nil {
			continue
		}
		if gang++; len(c.Gang.Processes) != 2 || !slices.Equal(c.Gang.GPUs, worldGPUs) {
			t.Errorf("%+v", c)
		}
	}
	if gang == 0 {
		t.Errorf("the gang is not ordered: %+v %+v", d.core.State().GPUs, d.core.State().Containers)
	}
	if s := d.core.State(); !slices.Contains(s.GPUs[0].Order, "a") || slices.Contains(s.GPUs[0].Order, "b") || len(s.GPUs[0].Order) != 3 {
		t.Errorf("order on the first GPU: %v", s.GPUs[0].Order)
	}
	if a := d.container("a"); a.Order == "" || strings.HasPrefix(a.Order, "left as it is") {
		t.Errorf("%+v", a)
	}
}

// On MIG instances only those containers are ordered that compute on one where a self-test showed that it works; the others
// are left as they are. Instances of one card are GPUs of their own.
func TestInstancesWithoutAProofAreLeftAsTheyAre(t *testing.T) {
	for _, tc := range []struct {
		name        string
		instances   config.Instances
		gang        string
		left, other bool // whether those on GPU-1, and on GPU-0, are left as they are
	}{
		{"simulated", config.Instances{All: true}, "", false, false},
		{"one is proven", config.Instances{Proven: []string{"GPU-0"}, Failed: map[string]string{"GPU-1": "slices are inert"}}, "", true, false},
		{"both are proven", config.Instances{Proven: worldGPUs}, "", false, false},
		{"none is proven", config.Instances{}, "", true, true},
		{"a gang on both, proven", config.Instances{Proven: worldGPUs}, "job", true, true},
		{"a gang on both, simulated", config.Instances{All: true}, "job", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDuet(t, func(o *core.Options, c []task.Container) {
				o.Instances = tc.instances
				for i := range 2 {
					c[i].Spec.Gang = tc.gang
				}
			}, func(s *task.Snapshot) {
				for i := range s.GPUs {
					s.GPUs[i].Parent = "GPU-card"
				}
			})
			for id, want := range map[string]bool{"a": tc.other, "b": tc.left} {
				c := d.container(id)
				if got := c.LeftAsItIs == state.ByMIG; got != want || got != strings.Contains(c.Order, "MIG instance") {
					t.Errorf("%s: %+v", id, c)
				}
			}
			if alone := d.container("trainer"); (alone.LeftAsItIs == state.ByMIG) != (tc.other && tc.gang == "") {
				t.Errorf("the trainer: %+v", alone)
			}
		})
	}
}

// A process may be left for now when its container goes to a second GPU: the reason is then that one.
func TestReasonFollowsWhoIsLeftAsItIs(t *testing.T) {
	for name, answer := range map[string]core.ChangeResult{
		"its program may still set its slice": {Unsettled: true},
		"it has no channels yet":              {NoGroup: true, Err: errors.New("no channel group")},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDuet(t, func(o *core.Options, c []task.Container) {
				o.AsOne, c[0].Spec.Gang, c[1].Spec.Gang = false, "", ""
			})
			const pid = 202 // it starts anew
			d.answers = map[int]core.ChangeResult{pid: answer}
			d.snap.Containers[2].Processes = []task.Process{{PID: pid, GPUs: worldGPUs[:1]}}
			d.snap.Tasks[2].PID = pid
			for range 3 {
				d.step()
			}
			if !slices.ContainsFunc(d.calls, func(c core.Change) bool { return c.Process.PID == pid }) {
				t.Fatal("nobody tried to order it: nothing was tested")
			}
			d.snap.Containers[2].Processes[0].GPUs = worldGPUs
			for range 3 {
				d.step()
			}
			if c := d.container("trainer"); c.LeftAsItIs != state.BySeveral {
				t.Errorf("on two GPUs: %+v", c)
			}
		})
	}
}

// stranger makes it a container without a label that uses a part of the first GPU.
func stranger(c *task.Container, use float64) {
	c.Spec, c.SMUtilization = task.Spec{Release: task.ReleaseProcess}, map[string]float64{"GPU-0": use}
}

// With pauses, tasks that can meet their deadlines are held for each other beside a container without a label that uses
// little, and not beside one that uses a lot: that one would take what they leave. Class batch gives way all the same.
func TestPausesBesideAContainerThatIsNotOurs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		use   float64
		class task.Class
		held  bool
	}{
		{"it uses little", 0.1, task.ClassDeadline, true},
		{"it uses a lot", 0.5, task.ClassDeadline, false},
		{"it uses a lot, beside class batch", 0.5, task.ClassBatch, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDuet(t, func(o *core.Options, c []task.Container) {
				o.Divides, o.AsOne = false, false
				stranger(&c[0], tt.use)
				c[1].Spec.Gang = ""
				urgent(c)
				if tt.class == task.ClassDeadline {
					urgent(c[:3])
				}
			})
			if held := len(d.holds) > 0; held != tt.held {
				t.Errorf("held: %+v", d.holds)
			}
		})
	}
}

// Beside a server with a short deadline two trainers take turns off the GPU, unless a container without a label uses a lot.
func TestTurnsBesideAContainerThatIsNotOurs(t *testing.T) {
	for use, turns := range map[float64]bool{0.1: true, 0.5: false} {
		d := newDuet(t, func(_ *core.Options, c []task.Container) {
			stranger(&c[0], use)
			c[1].Spec = task.Spec{Managed: true, Class: task.ClassDeadline, Release: task.ReleaseBusy, Deadline: 0.02}
			c[1].Processes[0].GPUs, c[1].SMUtilization = []string{"GPU-0"}, map[string]float64{"GPU-0": 0.05}
		}, func(s *task.Snapshot) { s.Tasks[1].GPUs = []string{"GPU-0"} })
		d.calls = nil
		for range 20 {
			d.step()
		}
		if off := slices.ContainsFunc(d.calls, func(c core.Change) bool { return c.Kind == core.SwitchOff }); off != turns {
			t.Errorf("beside one that uses %v: %+v", use, d.calls)
		}
	}
}

// While a pause is in force that somebody asked for, the container's channels are off without a break: the kernels that it
// has launched stand still, too. That does not depend on an order of the GPU. They are on again at once when nobody asks any more.
func TestKernelsOfWhoIsAskedToPauseStandStill(t *testing.T) {
	for _, arbitrate := range []config.Arbitration{config.Always, config.Never} {
		t.Run(string(arbitrate), func(t *testing.T) {
			book := lease.New()
			d := newDuet(t, func(o *core.Options, _ []task.Container) { o.Config.Arbitrate, o.Leases = arbitrate, book })
			last := func() (c core.Change) { // of the trainer
				for _, is := range d.calls {
					if is.Process.PID == 102 && is.Kind != core.InspectChannels {
						c = is
					}
				}
				return c
			}
			if last().Stands.Off {
				t.Fatalf("before: %+v", last())
			}
			pause := lease.Lease{Wish: lease.Pause, Target: "trainer", Fingerprint: "f", StartsAt: d.now, Opened: d.now, Expires: d.now.Add(time.Hour)}
			book.Fire(pause)
			d.step()
			if !slices.ContainsFunc(d.holds, func(a core.Action) bool { return a.Kind == plan.Pause && a.ContainerID == "trainer" }) {
				t.Fatalf("it is not paused: %+v", d.holds)
			}
			d.snap.Containers[2].Paused = true
			d.step()
			for range 20 {
				d.step()
				if c := last(); !c.Stands.Off || !c.Stands.Until.After(d.now) || c.Stands.Until.Sub(d.now) > time.Second {
					t.Fatalf("at %v %+v", d.now, c)
				}
				if !d.container("trainer").Off {
					t.Fatalf("%+v", d.container("trainer"))
				}
			}
			book.Resolve(lease.Pause, "f", pause.StartsAt, d.now)
			d.step()
			if c := last(); c.Stands.Off || d.container("trainer").Off {
				t.Errorf("after: %+v, %+v", c, d.container("trainer"))
			}
		})
	}
}
