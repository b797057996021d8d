package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// A person may pause all containers of a node: they stay paused. That many by limits of their memory open the breaker.
func TestPersonMayPauseAll(t *testing.T) {
	for name, person := range map[string]bool{"a person": true, "their limits": false} {
		t.Run(name, func(t *testing.T) {
			const n = 6
			began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			now, c := began, config.Config{}.WithDefaults()
			k := core.New(core.Options{Node: "n1", Config: c, Leases: lease.New(), History: estimate.New(),
				MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour}, now)
			paused, calls, opened := map[string]bool{}, map[plan.Kind]int{}, 0
			for now.Sub(began) < 3*time.Minute {
				s := &task.Snapshot{Run: "r", Time: now, Sequence: uint64(now.Sub(began)), Health: task.Health{DeviceUp: true, EngineUp: true},
					GPUs: []task.GPU{{UUID: "GPU-0", MemoryTotal: 1000, MemoryUsed: 600}}}
				for i := range n {
					id := fmt.Sprintf("c%d", i)
					is := task.Container{ID: id, Name: id, Paused: paused[id], Spec: task.Spec{Managed: true}}
					if !person {
						is.Spec.GPUMemory, is.MemoryUsed = 50, map[string]uint64{"GPU-0": 100}
					}
					s.Containers = append(s.Containers, is)
					s.Tasks = append(s.Tasks, task.Task{ID: id, Container: id, ContainerID: id, GPUs: []string{"GPU-0"}, State: task.Running, Start: task.Mark{Time: began}})
				}
				k.Snapshot(now, s, nil)
				k.Step(now, core.Around{GuardianUp: true, MayHold: true})
				if person && now.Equal(began) {
					for i := range n {
						kept, err := k.AskPause(now, "anna", fmt.Sprintf("c%d", i))
						if err == nil {
							err = kept(nil)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				for e := k.Effects(); !e.Empty(); e = k.Effects() {
					for _, d := range e.Decisions {
						if d.Kind == decision.Service && d.Result == decision.Failed {
							opened++
						}
					}
					for _, a := range e.Actions {
						calls[a.Kind]++
						if a.Kind == plan.Pause || a.Kind == plan.Unpause {
							paused[a.ContainerID] = a.Kind == plan.Pause
						}
						k.Finished(now, core.Result{Action: a, Started: now, OnRecord: true})
					}
				}
				now = now.Add(200 * time.Millisecond)
			}
			if person && (opened != 0 || calls[plan.Pause] != n || calls[plan.Unpause] != 0) || !person && opened == 0 {
				t.Errorf("the breaker opened %d times; %v", opened, calls)
			}
		})
	}
}
