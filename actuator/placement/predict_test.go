package placement_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// open is an idle node for the predictive ranking, with this work on its GPU.
func open(name string, n uint64, work ...placement.Work) placement.Node {
	return idle(name, n, func(node *placement.Node) { node.GPUs[0].Open, node.GPUs[0].Work = true, work })
}

func TestPredictive(t *testing.T) {
	w := func(due, left task.Seconds) placement.Work {
		return placement.Work{Container: "web", Due: due, Left: left}
	}
	for name, tc := range map[string]struct {
		nodes      []placement.Node
		request    placement.Request
		candidates string
		summary    string
	}{
		"the most time to spare first": {
			[]placement.Node{open("a", 80, w(4, 3)), open("b", 10), open("c", 80, w(2, 1))},
			placement.Request{Deadline: 9, Estimate: 3}, "b/GPU-b c/GPU-c a/GPU-a", "3/3 nodes",
		},
		"work that is due later does not delay; an idle GPU comes first all the same": {
			[]placement.Node{open("a", 80, w(60, 5)), open("b", 10)},
			placement.Request{Deadline: 9, Estimate: 3}, "b/GPU-b a/GPU-a", "2/2 nodes",
		},
		"work that is due earlier": {
			[]placement.Node{open("a", 80, w(7, 6.5))}, placement.Request{Deadline: 9, Estimate: 3}, "",
			"0/1 nodes: 1 time short (due in 9s, needs 3s after 6.5s of work that is due earlier)",
		},
		"no estimate: all of the deadline": {
			[]placement.Node{open("a", 80, w(7, 1)), open("b", 80)}, placement.Request{Deadline: 9}, "b/GPU-b",
			"1/2 nodes: 1 time short (due in 9s, needs up to 9s after 1s of work that is due earlier)",
		},
		"a later deadline would be lost": {
			[]placement.Node{open("a", 80, w(20, 18))}, placement.Request{Deadline: 9, Estimate: 3}, "",
			"0/1 nodes: 1 web would miss its deadline (has 2s to spare, the new task needs 3s)",
		},
		"a deadline that is lost anyway closes no GPU": {
			[]placement.Node{open("a", 80, w(2, 3)), open("b", 80, w(-1, 0))}, placement.Request{Deadline: 9, Estimate: 3}, "b/GPU-b a/GPU-a",
			"2/2 nodes",
		},
		"without a deadline it comes last and disturbs nobody": {
			[]placement.Node{open("a", 80, w(20, 19)), open("b", 40)}, placement.Request{Estimate: 100}, "b/GPU-b a/GPU-a", "2/2 nodes",
		},
		"a past miss does not bar, full use by unknown work does": {
			[]placement.Node{
				open("a", 80), // not provisionable in the paper's sense
				idle("b", 80, func(n *placement.Node) { n.GPUs[0].Utilization = 1 }),
				idle("c", 80),
			},
			placement.Request{Deadline: 9, Estimate: 3}, "a/GPU-a",
			"1/3 nodes: 1 GPU use 100% by tasks without a deadline, 1 GPU memory full (free 80GiB)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := placement.Predictive.Rank(tc.nodes, tc.request, now)
			if got := names(r); got != tc.candidates {
				t.Errorf("candidates = %q, want %q", got, tc.candidates)
			}
			if got := r.Summary(); got != tc.summary {
				t.Errorf("summary = %q, want %q", got, tc.summary)
			}
		})
	}
}

// The prediction is what a simulation of earliest deadline first finds, whatever
// the work: a GPU is a candidate exactly if the new task ends in time, and no other loses a
// deadline by it.
func TestPredictionIsEDF(t *testing.T) {
	seconds := func(low, high float64) *rapid.Generator[task.Seconds] {
		return rapid.Custom(func(t *rapid.T) task.Seconds {
			return task.Seconds(math.Round(rapid.Float64Range(low, high).Draw(t, "s")*4) / 4) // sums stay exact
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		work := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) placement.Work {
			return placement.Work{Container: "c", Due: seconds(-2, 40).Draw(t, "due"), Left: seconds(0, 8).Draw(t, "left")}
		}), 0, 12).Draw(t, "work")
		req := placement.Request{Deadline: seconds(0.25, 40).Draw(t, "deadline"), Estimate: seconds(0.25, 8).Draw(t, "estimate")}

		lost := func(with ...placement.Work) (n int, newInTime bool) {
			tasks := append(slices.Clone(work), with...)
			slices.SortStableFunc(tasks, func(a, b placement.Work) int { return cmp.Compare(a.Due, b.Due) })
			clock := task.Seconds(0)
			for _, w := range tasks {
				clock += w.Left
				switch {
				case w.Container == "new":
					newInTime = clock <= w.Due
				case clock > w.Due:
					n++
				}
			}
			return n, newInTime
		}
		before, _ := lost()
		after, inTime := lost(placement.Work{Container: "new", Due: req.Deadline, Left: req.Estimate})
		inTime = inTime && after == before
		v := placement.Predictive.Rank([]placement.Node{open("a", 1, work...)}, req, now)[0]
		if v.Candidate() != inTime {
			t.Fatalf("candidate = %v, a simulation says %v: %+v", v.Candidate(), inTime, v.Reasons)
		}
		if inTime && v.Score < 0 {
			t.Fatalf("score = %v", v.Score)
		}
	})
}

func TestReserve(t *testing.T) {
	nodes := []placement.Node{open("a", 12), open("b", 10)}
	work := placement.WorkOf(placement.Request{Deadline: 9, Estimate: 4})
	placement.Reserve(nodes,
		placement.Claim{Node: "a", GPU: "GPU-a", Memory: 4 * gib, Work: work},
		placement.Claim{Node: "a", GPU: "GPU-other", Memory: 4 * gib},
		placement.Claim{Node: "z", GPU: "GPU-a", Memory: 4 * gib})
	r := placement.Paper.Rank(nodes, placement.Request{GPUMemory: 20 * gib}, now)
	if got := r.Summary(); got != "0/2 nodes: 2 GPU memory short (need 20GiB, free 12GiB − 4GiB reserved)" {
		t.Error(got)
	}
	if got := names(placement.Paper.Rank(nodes, placement.Request{GPUMemory: gib}, now)); got != "b/GPU-b a/GPU-a" {
		t.Errorf("what is promised does not count: %s", got)
	}
	// 4 s are due in 9 s already: 6 more do not fit.
	if got := names(placement.Predictive.Rank(nodes, placement.Request{Deadline: 9, Estimate: 6}, now)); got != "b/GPU-b" {
		t.Errorf("promised work does not count: %s", got)
	}
	// Among equals, the one with fewer reservations.
	nodes = []placement.Node{open("a", 10), open("b", 10)}
	placement.Reserve(nodes, placement.Claim{Node: "a", GPU: "GPU-a"})
	if got := names(placement.Paper.Rank(nodes, placement.Request{}, now)); got != "b/GPU-b a/GPU-a" {
		t.Errorf("reservations without memory do not count: %s", got)
	}
	if largest, node := placement.Largest([]placement.Node{{Name: "x", GPUs: []placement.GPU{{MemoryTotal: 5}, {MemoryTotal: 7}}}}); largest != 7 || node != "x" {
		t.Errorf("largest = %d on %s", largest, node)
	}
}

func TestOnlyTheNodeThatIsAskedFor(t *testing.T) {
	nodes := []placement.Node{idle("a", 80), idle("b", 10)}
	if got := names(placement.Paper.Rank(nodes, placement.Request{Node: "b"}, now)); got != "b/GPU-b" {
		t.Error(got)
	}
	if r := placement.Paper.Rank(nodes, placement.Request{Node: "z"}, now); len(r) != 0 {
		t.Errorf("ranking = %v", r)
	}
}

func TestParseMethod(t *testing.T) {
	for text, want := range map[string]placement.Method{"": placement.Predictive, "paper": placement.Paper, "predictive": placement.Predictive} {
		if got, err := placement.ParseMethod(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := placement.ParseMethod("best"); err == nil {
		t.Error("a method that does not exist was read")
	}
}

// A deadline that was missed in the past closes no idle node, unless somebody asks for the
// paper's ranking.
func TestAPastMissClosesNoIdleNode(t *testing.T) {
	missed := open("a", 80)
	missed.GPUs[0].Provisionable = false
	for method, want := range map[placement.Method]string{placement.DefaultMethod: "a/GPU-a", placement.Paper: ""} {
		if got := names(method.Rank([]placement.Node{missed}, placement.Request{Deadline: 9}, now)); got != want {
			t.Errorf("%s: candidates %q, want %q", method, got, want)
		}
	}
}
