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

func TestOrders(t *testing.T) {
	isBatch := func(j *policy.Job) { j.Batch = true }
	request := func(j *policy.Job) { j.Request = true }
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
		{"edf: to the front, as long as it helps", edf,
			[]policy.Job{job("a", 5, 11), job("front", 5, 20, front), job("gone", 5, 9, front), job("none", 5, 0, front)},
			[]string{"front", "gone", "a", "none"}},
		{"llf: least laxity", llf,
			[]policy.Job{job("slack", 1, 20, needs(1)), job("tight", 1, 30, needs(19)), job("batch", 0, 0)},
			[]string{"tight", "slack", "batch"}},
		{"llf: what is not known has no laxity", llf,
			[]policy.Job{job("tight", 1, 30, needs(19)), job("unknown", 1, 99), job("lost", 1, 12, needs(5))},
			[]string{"lost", "unknown", "tight"}},
		{"late last, before batch", policy.LateLast{Placer: edf, Now: at(10)},
			[]policy.Job{job("batch", 0, 0), job("missed", 1, 9), job("hopeless", 1, 11, needs(2.1)), job("tight", 1, 11, needs(1.9)), job("b", 1, 20)},
			[]string{"tight", "b", "missed", "hopeless", "batch"}},
		{"a late request keeps the place of its deadline", policy.LateLast{Placer: edf, Now: at(10)},
			[]policy.Job{job("b", 1, 20), job("request", 1, 8.1, request), job("missed", 1, 9)}, []string{"request", "b", "missed"}},
		{"until it is too late", policy.LateLast{Placer: edf, Now: at(10)},
			[]policy.Job{job("b", 1, 20), job("request", 1, 7.9, request), job("missed", 1, 7)}, []string{"b", "missed", "request"}},
		{"which is a setting", policy.LateLast{Placer: llf, Now: at(10), Late: 5 * time.Second},
			[]policy.Job{job("b", 1, 20), job("request", 1, 5.1, request)}, []string{"request", "b"}},
		{"a request of class batch is batch", policy.LateLast{Placer: edf, Now: at(10)},
			[]policy.Job{job("request", 1, 11, request, isBatch), job("missed", 1, 9)}, []string{"missed", "request"}},
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
	j.Request = rapid.Bool().Draw(t, "request")
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
	return []policy.Order{policy.FIFO{}, edf, llf, policy.LateLast{Placer: edf, Now: now}, policy.LateLast{Placer: llf, Now: now}}
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

// Whoever has a deadline comes before class batch, however late it is.
func TestBatchComesLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawUrgent(t, "a"), draw(t, "b")
		b.Batch = true
		for _, o := range orders(at(10))[1:] {
			if o.Compare(a, b) >= 0 {
				t.Fatalf("%T puts batch first", o)
			}
		}
	})
}

// A request keeps its place by its deadline, late or not, within the bound; only
// tasks of release process are put back for being late.
func TestALateRequestKeepsItsPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawUrgent(t, "a"), drawUrgent(t, "b")
		a.Request = true
		o := policy.LateLast{Placer: policy.EDF{Now: at(10)}, Now: at(10), Late: time.Duration(rapid.IntRange(1, 10).Draw(t, "bound")) * time.Second}
		tooLate := at(10).Sub(a.Deadline) > o.Late
		if before := o.Compare(a, b) < 0; a.Deadline.Before(b.Deadline) && !tooLate && !before {
			t.Fatalf("a request that is late by %v is behind a later deadline", at(10).Sub(a.Deadline))
		}
	})
}

// With LateLast two deadlines are inverted only where the earlier one cannot be
// met any more.
func TestATaskThatCanBeInTimeComesFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawUrgent(t, "a"), drawUrgent(t, "b")
		if a.Deadline.Equal(b.Deadline) {
			t.Skip("of no interest here")
		}
		if b.Deadline.Before(a.Deadline) {
			a, b = b, a
		}
		now := at(10)
		inverted := policy.LateLast{Placer: policy.EDF{Now: now}, Now: now}.Compare(a, b) > 0
		late := func(j policy.Job) bool {
			if j.Request {
				return now.Sub(j.Deadline) > policy.DefaultLate
			}
			return policy.Late(j, now)
		}
		if putBack := late(a) && !late(b); inverted != putBack {
			t.Fatalf("inverted %v, late %v and %v", inverted, late(a), late(b))
		}
	})
}
