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

// Those that are not ours to act on are greedy once they have used a good part of the GPU for some seconds, for a minute
// or until they rest; and where nobody's use is measured.
func TestGreed(t *testing.T) {
	u, begin := newUsage(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := 0
	seconds := func(n int, uses map[string]float64) {
		for range n {
			s := &task.Snapshot{Time: begin.Add(time.Duration(at) * time.Second)}
			for id, use := range uses {
				s.Containers = append(s.Containers, task.Container{ID: id, SMUtilization: map[string]float64{"GPU-a": use}})
			}
			u.measure(s)
			at++
		}
	}
	both := []string{"x", "y"}
	for _, step := range []struct {
		name    string
		seconds int
		uses    map[string]float64
		of      []string
		greedy  bool
	}{
		{"nobody is there", 0, nil, nil, false},
		{"nothing is measured", 0, nil, both, true},
		{"they use little", 10, map[string]float64{"ours": 0.8, "x": 0.05, "y": 0.05}, both, false},
		{"a request of a second", 1, map[string]float64{"ours": 0.3, "x": 0.7, "y": 0}, both, false},
		{"ours alone is not meant", 10, map[string]float64{"ours": 0.8, "x": 0.1, "y": 0.1}, both, false},
		{"together they use a lot", 6, map[string]float64{"ours": 0.6, "x": 0.2, "y": 0.2}, both, true},
		{"that counts", 50, map[string]float64{"ours": 0.9, "x": 0.05, "y": 0.05}, both, true},
		{"no longer", 15, map[string]float64{"ours": 0.9, "x": 0.05, "y": 0.05}, both, false},
		{"a trainer", 6, map[string]float64{"ours": 0.5, "x": 0.5}, both, true},
		{"it rests", 5, map[string]float64{"ours": 1, "x": 0}, []string{"x"}, false},
		{"it has rested", 1, map[string]float64{"ours": 0.9, "x": 0.1}, []string{"x"}, false},
		{"a trainer again", 6, map[string]float64{"ours": 0.5, "x": 0.5}, []string{"x"}, true},
		{"it has ended", 0, nil, nil, false},
		{"another one is new", 1, map[string]float64{"ours": 0.9, "z": 0.1}, []string{"z"}, false},
	} {
		seconds(step.seconds, step.uses)
		if got := u.isGreedy("GPU-a", step.of, begin.Add(time.Duration(max(at-1, 0))*time.Second)); got != step.greedy {
			t.Errorf("%s: greedy %v", step.name, got)
		}
	}
}
