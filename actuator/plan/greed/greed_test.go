package greed_test

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/greed"
)

// Strangers are greedy once they have used a good part of the GPU for some seconds, for a minute, and while they do not rest.
func TestGreedy(t *testing.T) {
	type parts = map[string]float64
	both := []string{"x", "y"}
	j, now := greed.Judge{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		name    string
		seconds int
		parts   parts
		of      []string
		greedy  bool
	}{
		{"nobody is there", 0, nil, nil, false},
		{"nothing is read", 0, nil, both, false},
		{"they use little", 10, parts{"ours": 0.8, "x": 0.05, "y": 0.05}, both, false},
		{"a request of a second", 1, parts{"ours": 0.3, "x": 0.7, "y": 0}, both, false},
		{"ours do not count", 10, parts{"ours": 0.8, "x": 0.1, "y": 0.1}, both, false},
		{"together they use a lot", 6, parts{"ours": 0.6, "x": 0.2, "y": 0.2}, both, true},
		{"that counts", 50, parts{"ours": 0.9, "x": 0.05, "y": 0.05}, both, true},
		{"no longer", 15, parts{"ours": 0.9, "x": 0.05, "y": 0.05}, both, false},
		{"a trainer", 6, parts{"ours": 0.5, "x": 0.5}, both, true},
		{"no reading comes", 0, nil, both, true},
		{"it rests", 5, parts{"ours": 1, "x": 0}, both, false},
		{"it goes on", 1, parts{"ours": 0.9, "x": 0.1}, both, true},
		{"ours counts for a moment", 6, parts{"ours": 0.9, "z": 0.1}, []string{"ours", "z"}, true},
		{"and no longer", 1, parts{"ours": 0.9, "z": 0.1}, []string{"z"}, false},
		{"a trainer beside a small one", 6, parts{"x": 0.5, "y": 0.05}, both, true},
		{"its process has ended", 5, parts{"ours": 0.9, "y": 0.05}, both, false},
		{"its container has ended", 0, nil, []string{"y"}, false},
	} {
		for range step.seconds * 5 {
			now = now.Add(200 * time.Millisecond)
			j.Read(now, step.parts)
			j.Greedy(step.of)
		}
		if got := j.Greedy(step.of); got != step.greedy {
			t.Errorf("%s: greedy %v", step.name, got)
		}
	}
}

// A reading counts for a second at most, however long none came before it.
func TestLateReading(t *testing.T) {
	j, now := greed.Judge{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	j.Read(now, map[string]float64{"x": 0.1})
	j.Read(now.Add(time.Hour), map[string]float64{"x": 1})
	if j.Greedy([]string{"x"}) {
		t.Error("one reading of all of the GPU is no greed")
	}
	if j.Read(now.Add(time.Hour+time.Second), map[string]float64{"x": 1}); !j.Greedy([]string{"x"}) {
		t.Error("two in succession are")
	}
}
