package core

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// What a process had only grows, also while another process of its container comes and goes.
func TestUsageOfAProcessOnlyGrows(t *testing.T) {
	u := newUsage()
	begin, last := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Duration(0)
	for i, c := range []struct {
		processes int
		grows     time.Duration
	}{{1, 0}, {1, 500 * time.Millisecond}, {2, 250 * time.Millisecond}, {1, 500 * time.Millisecond}, {0, 500 * time.Millisecond}} {
		now := begin.Add(time.Duration(i) * time.Second)
		u.measure(&task.Snapshot{Time: now, Containers: []task.Container{{
			ID: "c", Processes: make([]task.Process, c.processes), SMUtilization: map[string]float64{"GPU-a": 0.5},
		}}})
		tenant := ladder.Tenant{Container: "c"}
		u.report(&tenant, "GPU-a", now)
		if tenant.Got-last != c.grows || !tenant.Measured {
			t.Errorf("reading %d: it had %v, %v before", i, tenant.Got, last)
		}
		last = tenant.Got
	}
}
