package core_test

import (
	"errors"
	"slices"
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

// The engine tells the labels of containers one by one. The order of their starts counts, not that of
// its answers, and a container of which it tells nothing keeps nobody waiting.
func TestOrderWaitsForLabels(t *testing.T) {
	for name, fails := range map[string]bool{"both are told": false, "one is not": true} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			snap := &task.Snapshot{Run: "r", Sequence: 1, Time: now, Health: task.Health{DeviceUp: true, EngineUp: true},
				GPUs: []task.GPU{{UUID: "GPU-0", MemoryTotal: 100, Utilization: 1}}}
			starts := map[int]uint64{}
			for i, id := range []string{"first", "second", "third"} {
				starts[i+1] = 1
				snap.Containers = append(snap.Containers, task.Container{ID: id, Name: id, Spec: task.Spec{Managed: true, Class: task.ClassBatch, Release: task.ReleaseProcess}})
				snap.Tasks = append(snap.Tasks, task.Task{ID: id, PID: i + 1, Container: id, ContainerID: id, GPUs: []string{"GPU-0"}, State: task.Running,
					Start: task.Mark{Time: now.Add(time.Duration(i-60) * time.Second)}, MemoryUsed: map[string]uint64{"GPU-0": 10}})
			}
			k := core.New(core.Options{Node: "n1", Config: config.Config{Policy: "fifo", Share: "one", Arbitrate: config.Always}.WithDefaults(),
				Leases: lease.New(), History: estimate.New(), Allow: core.Allow{"ours"}, MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour}, now)
			k.Snapshot(now, snap, starts)
			var paused []string
			step := func() (asked []core.Action) {
				k.Step(now, core.Around{GuardianUp: true, MayHold: true})
				for _, a := range k.Effects().Actions {
					switch a.Kind {
					case core.Inspect:
						asked = append(asked, a)
					case plan.Pause:
						paused = append(paused, a.ContainerID)
					}
				}
				return asked
			}
			asked := step()
			if len(asked) != 3 {
				t.Fatalf("asked about %v", asked)
			}
			slices.Reverse(asked) // the engine answers in this order
			for _, a := range asked {
				if len(paused) > 0 {
					t.Errorf("%v paused before the labels of all were known", paused)
				}
				r := core.Result{Action: a, Started: now, Status: enforce.Status{Labels: map[string]string{"ours": ""}}}
				if a.ContainerID == "first" && fails {
					r.Err = errors.New("internal error")
				}
				k.Finished(now, r)
				step()
			}
			want := []string{"second", "third"}
			if fails {
				want = []string{"third"}
			}
			if slices.Sort(paused); !slices.Equal(paused, want) {
				t.Errorf("paused %v, want %v", paused, want)
			}
		})
	}
}
