package policy_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

func TestFIFO(t *testing.T) {
	at := func(id string, pid int, s int64) task.Task {
		return task.Task{ID: id, PID: pid, Start: task.Mark{Time: time.Unix(s, 0)}}
	}
	in := []task.Task{at("c", 9, 2), at("b", 8, 2), at("a", 99, 1), at("d", 8, 2)}
	var got []string
	for _, x := range policy.Sort(policy.FIFO{}, in) {
		got = append(got, x.ID)
	}
	if want := []string{"a", "b", "d", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if in[0].ID != "c" {
		t.Error("the argument was changed")
	}
}

func TestFIFOIsAStrictOrder(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) task.Task {
		return task.Task{
			ID: rapid.StringMatching("[ab]").Draw(t, "id"), PID: rapid.IntRange(1, 2).Draw(t, "pid"),
			Start: task.Mark{Time: time.Unix(rapid.Int64Range(0, 2).Draw(t, "start"), 0)},
			State: rapid.SampledFrom(task.UnfinishedStates).Draw(t, "state"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := draw.Draw(t, "a"), draw.Draw(t, "b"), draw.Draw(t, "c")
		o := policy.FIFO{}
		if (o.Compare(a, b) < 0) != (o.Compare(b, a) > 0) {
			t.Fatal("not antisymmetric")
		}
		if o.Compare(a, b) < 0 && o.Compare(b, c) < 0 && o.Compare(a, c) >= 0 {
			t.Fatal("not transitive")
		}
		other := a
		other.State = b.State
		if o.Compare(a, other) != 0 {
			t.Fatal("depends on the state")
		}
	})
}
