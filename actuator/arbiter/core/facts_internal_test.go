package core

import (
	"testing"
	"time"

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
