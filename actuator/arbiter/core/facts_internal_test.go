package core

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/exporter/task"
)

// What is older is told by run and sequence; times do not matter but among equals.
func TestOlderSnapshots(t *testing.T) {
	now := time.Now()
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	present := &task.Snapshot{Run: "b", Sequence: 7, Time: at(0)}
	f := &observed{snap: present, former: formerRun{"a", at(0)}}
	for name, tt := range map[string]struct {
		s    task.Snapshot
		now  time.Time
		want bool
	}{
		"next, confirmed in the past":          {task.Snapshot{Run: "b", Sequence: 8, Time: at(-3600)}, at(1), false},
		"before, confirmed in the future":      {task.Snapshot{Run: "b", Sequence: 6, Time: at(3600)}, at(1), true},
		"the same, confirmed again":            {task.Snapshot{Run: "b", Sequence: 7, Time: at(1)}, at(1), false},
		"the same, confirmed before":           {task.Snapshot{Run: "b", Sequence: 7, Time: at(-1)}, at(1), true},
		"another run, from the beginning":      {task.Snapshot{Run: "c", Sequence: 1, Time: at(-3600)}, at(1), false},
		"the run before comes late":            {task.Snapshot{Run: "a", Sequence: 99, Time: at(1)}, at(1), true},
		"the run before was none that is over": {task.Snapshot{Run: "a", Sequence: 99, Time: at(60)}, at(60), false},
	} {
		if got := f.older(&tt.s, tt.now); got != tt.want {
			t.Errorf("%s: older %v, want %v", name, got, tt.want)
		}
	}
}

// Snapshots of an exporter that is behind are asked for again after FetchEvery, not at once, and those
// that a message waits for at once.
func TestAnOldSnapshotIsAskedForAgainNotAtOnce(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k := New(Options{Leases: lease.New(), History: estimate.New(), Config: config.Config{}.WithDefaults(),
		MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: 50 * time.Millisecond}, now)
	fetches := 0
	step := func(inbox int) {
		k.Step(now, Around{MayHold: true, Inbox: inbox})
		if k.Effects().Fetch {
			fetches++
			k.Snapshot(now, &task.Snapshot{Run: "a", Time: now, Age: 5, Health: task.Health{DeviceUp: true, EngineUp: true}}, nil)
			k.Fetched(now, nil)
		}
	}
	for range 1000 { // a second
		step(0)
		now = now.Add(time.Millisecond)
	}
	if fetches < 15 || fetches > 21 {
		t.Errorf("%d snapshots were asked for within a second, want one every 50 ms", fetches)
	}
	step(0)
	fetches = 0
	k.Refetch()
	if step(1); fetches != 1 {
		t.Errorf("a message waits, and %d snapshots were asked for", fetches)
	}
}
