package policy_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

func at(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }

func job(id string, start, deadline float64, change ...func(*policy.Job)) policy.Job {
	j := policy.Job{Task: task.Task{ID: id, PID: 7, Start: task.Mark{Time: at(start)}}}
	if deadline > 0 {
		j.Deadline = at(deadline)
	}
	for _, c := range change {
		c(&j)
	}
	return j
}

func needs(s float64) func(*policy.Job) {
	return func(j *policy.Job) {
		j.Remaining, j.Known = time.Duration(s*float64(time.Second)), true
		j.Least = j.Remaining
	}
}

func waited(s float64) func(*policy.Job) {
	return func(j *policy.Job) { j.Waited = time.Duration(s * float64(time.Second)) }
}

func TestOrders(t *testing.T) {
	isBatch := func(j *policy.Job) { j.Batch = true }
	front := func(j *policy.Job) { j.Expedited = true }
	pid := func(pid int) func(*policy.Job) { return func(j *policy.Job) { j.PID = pid } }
	edf, llf := policy.EDF{Now: at(10)}, policy.LLF{Now: at(10)}
	for _, tt := range []struct {
		name  string
		order policy.Order
		in    []policy.Job
		want  []string
	}{
		{"fifo: start, then PID, then id", policy.FIFO{},
			[]policy.Job{job("c", 2, 1, pid(9)), job("b", 2, 0, pid(8)), job("a", 1, 0, pid(99)), job("d", 2, 0, pid(8))},
			[]string{"a", "b", "d", "c"}},
		{"edf: deadline, then start", edf,
			[]policy.Job{job("late", 1, 30), job("b", 3, 20), job("a", 2, 20), job("missed", 4, 9)},
			[]string{"missed", "a", "b", "late"}},
		{"edf: batch last, by start, whatever its label says", edf,
			[]policy.Job{job("y", 2, 0), job("x", 1, 12, isBatch), job("a", 5, 99)}, []string{"a", "x", "y"}},
		{"edf: patience ends", edf,
			[]policy.Job{job("a", 5, 11), job("b", 5, 9), job("patient", 1, 0, waited(30.5))}, []string{"b", "patient", "a"}},
		{"edf: to the front, as long as it helps", edf,
			[]policy.Job{job("a", 5, 11), job("front", 5, 20, front), job("gone", 5, 9, front), job("none", 5, 0, front)},
			[]string{"front", "gone", "a", "none"}},
		{"llf: least laxity", llf,
			[]policy.Job{job("slack", 1, 20, needs(1)), job("tight", 1, 30, needs(19)), job("batch", 0, 0)},
			[]string{"tight", "slack", "batch"}},
		{"llf: what is not known has no laxity", llf,
			[]policy.Job{job("tight", 1, 30, needs(19)), job("unknown", 1, 99), job("lost", 1, 12, needs(5))},
			[]string{"lost", "unknown", "tight"}},
		{"late last, before batch", policy.LateLast{Order: edf, Now: at(10)},
			[]policy.Job{job("batch", 0, 0), job("missed", 1, 9), job("hopeless", 1, 11, needs(2.1)), job("tight", 1, 11, needs(1.9)), job("b", 1, 20)},
			[]string{"tight", "b", "missed", "hopeless", "batch"}},
		{"late last: patience ends", policy.LateLast{Order: edf, Now: at(10)},
			[]policy.Job{job("missed", 1, 9, waited(31)), job("b", 1, 20)}, []string{"missed", "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := tt.in[0].ID
			var got []string
			for _, j := range policy.Sort(tt.order, tt.in) {
				got = append(got, j.ID)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if tt.in[0].ID != first {
				t.Error("the argument was changed")
			}
		})
	}
}

func draw(t *rapid.T, label string) policy.Job {
	j := job(rapid.StringMatching("[ab]").Draw(t, label+" id"), float64(rapid.IntRange(0, 2).Draw(t, "start")), float64(rapid.IntRange(0, 14).Draw(t, "deadline")))
	j.PID = rapid.IntRange(1, 2).Draw(t, "pid")
	j.State = rapid.SampledFrom(task.UnfinishedStates).Draw(t, "state")
	j.Batch = rapid.IntRange(0, 3).Draw(t, "batch") == 0
	j.Expedited = rapid.IntRange(0, 3).Draw(t, "expedited") == 0
	j.Known = rapid.Bool().Draw(t, "known")
	j.Remaining = time.Duration(rapid.IntRange(0, 4).Draw(t, "remaining")) * time.Second
	j.Least = j.Remaining / time.Duration(rapid.IntRange(1, 4).Draw(t, "least"))
	j.Waited = time.Duration(rapid.IntRange(0, 4).Draw(t, "waited")) * 10 * time.Second
	return j
}

// drawUrgent draws a task whose deadline counts, and that nobody moved to the front.
func drawUrgent(t *rapid.T, label string) policy.Job {
	j := draw(t, label)
	j.Deadline, j.Batch, j.Expedited = at(float64(rapid.IntRange(1, 14).Draw(t, label+" due"))), false, false
	return j
}

func orders(now time.Time) []policy.Order {
	edf, llf := policy.EDF{Now: now}, policy.LLF{Now: now}
	return []policy.Order{policy.FIFO{}, edf, llf, policy.LateLast{Order: edf, Now: now}, policy.LateLast{Order: llf, Now: now}}
}

func TestOrdersAreStrict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := draw(t, "a"), draw(t, "b"), draw(t, "c")
		for _, o := range orders(at(10)) {
			if o.Compare(a, b) != -o.Compare(b, a) {
				t.Fatalf("%T is not antisymmetric", o)
			}
			if o.Compare(a, b) < 0 && o.Compare(b, c) < 0 && o.Compare(a, c) >= 0 {
				t.Fatalf("%T is not transitive", o)
			}
			if a.ID != b.ID && o.Compare(a, b) == 0 {
				t.Fatalf("%T does not decide", o)
			}
			other := a
			other.State = b.State
			if o.Compare(a, other) != 0 {
				t.Fatalf("%T depends on the state", o)
			}
		}
	})
}

// Of two tasks whose deadlines count, and that nobody moved to the front, EDF
// never puts the later one first; LLF never the one with more laxity.
func TestNoInversion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawUrgent(t, "a"), drawUrgent(t, "b")
		if a.Deadline.Before(b.Deadline) && (policy.EDF{Now: at(10)}).Compare(a, b) >= 0 {
			t.Fatal("EDF inverts two deadlines")
		}
		if policy.Laxity(a, at(10)) < policy.Laxity(b, at(10)) && (policy.LLF{Now: at(10)}).Compare(a, b) >= 0 {
			t.Fatal("LLF inverts two laxities")
		}
	})
}

// A batch task that waits comes, sooner or later, before every task that begins
// after it: nobody starves.
func TestPatienceEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := at(float64(rapid.IntRange(0, 1000).Draw(t, "now")))
		old := job("old", 0, 0, waited(policy.DefaultPatience.Seconds()))
		young := job("young", 0, 0)
		young.Start.Time = now
		young.Deadline = now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "relative deadline, ms")) * time.Millisecond)
		if (policy.EDF{Now: now}).Compare(old, young) >= 0 {
			t.Fatal("EDF starves the batch task")
		}
		young.Remaining, young.Known = 0, true
		if (policy.LLF{Now: now}).Compare(old, young) >= 0 {
			t.Fatal("LLF starves the batch task")
		}
	})
}

// With LateLast two deadlines are inverted only where the earlier one cannot be
// met any more.
func TestOnlyLateTasksArePutBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawUrgent(t, "a"), drawUrgent(t, "b")
		if a.Deadline.Equal(b.Deadline) {
			t.Skip("of no interest here")
		}
		if b.Deadline.Before(a.Deadline) {
			a, b = b, a
		}
		now := at(10)
		inverted := policy.LateLast{Order: policy.EDF{Now: now}, Now: now}.Compare(a, b) > 0
		putBack := policy.Late(a, now) && a.Waited < policy.DefaultPatience && (!policy.Late(b, now) || b.Waited >= policy.DefaultPatience)
		if inverted != putBack {
			t.Fatalf("inverted %v, late %v and %v", inverted, policy.Late(a, now), policy.Late(b, now))
		}
	})
}
