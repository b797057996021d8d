package core_test

import (
	"errors"
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

// A container that ends while it is swapped out goes off the record by a swap-in, once the engine says that it has
// ended: a snapshot may lack it for another reason. Around --max-hold nothing is written to disk for it.
func TestSwappedContainerThatTheSnapshotLacks(t *testing.T) {
	up := task.Health{DeviceUp: true, EngineUp: true}
	for name, tt := range map[string]struct {
		allow           core.Allow
		health          task.Health
		shown           bool  // the snapshot has it
		engine, swapIn  error // answers
		inspects, swaps [2]int
		standsBy        bool
	}{
		"it has ended":                               {health: up, engine: enforce.ErrGone, inspects: [2]int{1, 1}, swaps: [2]int{1, 1}},
		"it has ended, and labels are asked for":     {health: up, allow: core.Allow{"team"}, engine: enforce.ErrGone, inspects: [2]int{1, 1}, swaps: [2]int{1, 1}},
		"it lives":                                   {health: up, inspects: [2]int{30, 60}},
		"the engine does not answer":                 {health: up, engine: enforce.ErrUnavailable, inspects: [2]int{30, 60}},
		"it has ended, and the swap-in fails":        {health: up, engine: enforce.ErrGone, swapIn: errors.New("disk full"), inspects: [2]int{3, 15}, swaps: [2]int{3, 15}},
		"the snapshot has it, and it has no task":    {health: up, shown: true, swapIn: enforce.ErrNoRoom, swaps: [2]int{1, 60}},
		"the exporter has only just begun":           {engine: enforce.ErrGone},
		"another actuator acts on the engine":        {health: up, standsBy: true, engine: enforce.ErrGone},
		"it has ended, and the exporter has no GPUs": {health: task.Health{EngineUp: true}, engine: enforce.ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			book, c := lease.New(), config.Config{}.WithDefaults()
			k := core.New(core.Options{Node: "n1", Config: c, Leases: book, History: estimate.New(), Allow: tt.allow, Swaps: true,
				MaxSnapshotAge: 10 * time.Second, HoldLease: time.Hour, FetchEvery: time.Hour}, now)
			if tt.standsBy {
				k.Lead(now, false, "another actuator acts")
			}
			record := []enforce.Swapped{{ContainerID: "web", Container: "web", Bytes: map[string]uint64{"GPU-0": 50}, Since: now.Add(time.Second - c.MaxHold), Stage: enforce.Suspended}}
			k.Swapped(now, record)
			inspects, swaps, writes := 0, 0, 0
			for range 300 {
				now = now.Add(100 * time.Millisecond)
				s := task.Snapshot{Run: "r", Sequence: 1, Time: now, Health: tt.health}
				if tt.health.DeviceUp {
					s.GPUs = []task.GPU{{UUID: "GPU-0", MemoryTotal: 100}}
				}
				if tt.shown {
					s.Containers = []task.Container{{ID: "web", Name: "web", Paused: true, Spec: task.Spec{Managed: true}}}
				}
				k.Snapshot(now, &s, nil)
				k.Step(now, core.Around{GuardianUp: true, MayHold: true})
				if book.Changed() {
					writes++
				}
				book.Written()
				for e := k.Effects(); !e.Empty(); e = k.Effects() {
					for _, a := range e.Actions {
						r := core.Result{Action: a, Started: now, SwappedKnown: true, Swapped: record}
						switch a.Kind {
						case core.Inspect:
							inspects++
							r.Err, r.Status = tt.engine, enforce.Status{Running: true, Paused: true}
						case plan.SwapIn:
							if swaps++; tt.engine != nil && a.Reason != "it has ended" {
								t.Errorf("it is swapped in because %s", a.Reason)
							}
							if r.Err = tt.swapIn; r.Err == nil {
								r.Swapped = nil
							}
						default:
							t.Errorf("%+v", a)
						}
						k.Finished(now, r)
					}
				}
			}
			if inspects < tt.inspects[0] || inspects > tt.inspects[1] || swaps < tt.swaps[0] || swaps > tt.swaps[1] {
				t.Errorf("%d inspections, %d swaps in", inspects, swaps)
			}
			if writes > 0 {
				t.Errorf("the leases are written %d times", writes)
			}
		})
	}
}
