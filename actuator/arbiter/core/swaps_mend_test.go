package core_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// full is a card of 1000 bytes with two containers that may each have 600: web and other.
type full struct {
	k          *core.Core
	now, began time.Time
}

func newFull(t *testing.T, record []enforce.Swapped) *full {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := &full{now: now, began: now, k: core.New(core.Options{Node: "n1", Config: config.Config{}.WithDefaults(), Leases: lease.New(), History: estimate.New(), Swaps: true,
		MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour}, now)}
	f.k.Swapped(now, record)
	return f
}

// step passes 100 ms, and each action to the function, whose answer counts at once; nil: the answer comes later.
func (f *full) step(web, other task.Container, state task.State, act func(core.Action) *core.Result) {
	f.now = f.now.Add(100 * time.Millisecond)
	s := task.Snapshot{Run: "r", Sequence: 1, Time: f.now, Health: task.Health{DeviceUp: true, EngineUp: true},
		GPUs: []task.GPU{{UUID: "GPU-0", MemoryTotal: 1000, MemoryUsed: 1000}}}
	for i, c := range []task.Container{web, other} {
		c.Name, c.PID, c.VisibleGPUs, c.Spec = c.ID, 10*(i+1), []string{"GPU-0"}, task.Spec{Managed: true, GPUMemory: 600}
		s.Containers = append(s.Containers, c)
		s.Tasks = append(s.Tasks, task.Task{ID: c.ID, PID: c.PID + 1, Container: c.ID, ContainerID: c.ID, GPUs: c.VisibleGPUs, State: task.Running, Start: task.Mark{Time: f.began}})
	}
	s.Tasks[1].State = state
	f.k.Snapshot(f.now, &s, nil)
	f.k.Step(f.now, core.Around{GuardianUp: true, MayHold: true, Guard: &core.Guard{}})
	for e := f.k.Effects(); !e.Empty(); e = f.k.Effects() {
		for _, a := range e.Actions {
			if r := act(a); r != nil {
				f.k.Finished(f.now, *r)
			}
		}
	}
}

// What a swap left in the middle is brought back although the plan sees no room for it: its memory may be on the card
// still. It is tried again ever more seldom.
func TestSwapLeftInTheMiddleIsMended(t *testing.T) {
	for stage, want := range map[enforce.SwapStage][2]int{enforce.Stuck: {20, 30}, enforce.Suspending: {20, 30}, enforce.Resuming: {20, 30}, enforce.Suspended: {0, 0}} {
		t.Run(string(stage), func(t *testing.T) {
			record := []enforce.Swapped{{ContainerID: "web", Container: "web", Bytes: map[string]uint64{"GPU-0": 600}, Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Stage: stage}}
			f := newFull(t, record)
			tries := 0
			for f.now.Sub(f.began) < 9*time.Minute { // less than --max-hold
				held := map[string]uint64{"GPU-0": 500}
				f.step(task.Container{ID: "web", MemoryUsed: held}, task.Container{ID: "other", MemoryUsed: held}, task.Running, func(a core.Action) *core.Result {
					r := &core.Result{Action: a, Started: f.now, SwappedKnown: true, Swapped: record}
					switch a.Kind {
					case core.AskSwap:
						r.Err = enforce.ErrCannotSwap
					case plan.SwapIn:
						tries++
						r.Err = fmt.Errorf("web is %w: the engine does not answer", enforce.ErrStuck)
					}
					return r
				})
			}
			if tries < want[0] || tries > want[1] {
				t.Errorf("it is tried %d times, want %v", tries, want)
			}
		})
	}
}

// A container whose kernels do not end stands still in vain at each try to swap it out: the tries become seldom.
func TestSwapsOutThatAreUndoneBecomeSeldom(t *testing.T) {
	const stands = 10 * time.Second
	record := []enforce.Swapped{{ContainerID: "other", Container: "other", Bytes: map[string]uint64{"GPU-0": 600}, Since: time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC), Stage: enforce.Suspended}}
	f := newFull(t, record)
	var tries []time.Duration
	var undone *core.Result
	var ends time.Time
	for f.now.Sub(f.began) < time.Hour {
		f.step(task.Container{ID: "web", MemoryUsed: map[string]uint64{"GPU-0": 600}}, task.Container{ID: "other", Paused: true}, task.Swapped, func(a core.Action) *core.Result {
			r := core.Result{Action: a, Started: f.now, SwappedKnown: true, Swapped: record}
			if a.Kind != plan.SwapOut {
				return &r
			}
			tries = append(tries, f.now.Sub(f.began).Round(time.Second))
			r.Err = fmt.Errorf("%w: its kernels did not end in time", enforce.ErrUndone)
			undone, ends = &r, f.now.Add(stands)
			return nil
		})
		if undone != nil && !f.now.Before(ends) {
			f.k.Finished(f.now, *undone)
			undone = nil
		}
	}
	if len(tries) < 3 || len(tries) > 7 {
		t.Errorf("it is tried at %v", tries)
	}
	for i := 2; i < len(tries); i++ {
		if tries[i]-tries[i-1] < (tries[i-1]-tries[i-2])*3/2 {
			t.Errorf("it is tried at %v: no more seldom", tries)
		}
	}
}

// Where our hold cannot be released before a swap, the container is paused by us still, and stays known as that.
func TestHoldThatASwapDidNotReleaseStays(t *testing.T) {
	for name, tt := range map[string]struct {
		err      error
		onRecord bool
		holds    int
	}{
		"the engine does not answer":    {errors.New("release before swapping out: the engine does not answer"), true, 1},
		"overtaken: nothing was tried":  {core.ErrOvertaken, true, 1},
		"released, and then not locked": {enforce.ErrUndone, false, 0},
		"swapped out":                   {nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFull(t, nil)
			a := plan.Action{Kind: plan.Pause, ContainerID: "web", Container: "web", Cause: plan.Relieve, GPUs: []string{"GPU-0"}}
			f.k.Begin(a)
			f.k.Finished(f.now, core.Result{Action: core.Action{Action: a}})
			a.Kind, a.Standing = plan.SwapOut, plan.Ours
			f.k.Begin(a)
			f.k.Finished(f.now, core.Result{Action: core.Action{Action: a}, Err: tt.err, OnRecord: tt.onRecord, SwappedKnown: true})
			if n := len(f.k.Holds()); n != tt.holds {
				t.Errorf("%d holds are known, want %d", n, tt.holds)
			}
		})
	}
}
