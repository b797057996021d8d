package placement_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// A refusal says when it is expected to be over, from what is known of queued tasks.
func TestRefusalSaysUntilWhen(t *testing.T) {
	w := func(due, left task.Seconds, memory uint64) placement.Work {
		return placement.Work{Container: "web", Due: due, Left: left, Memory: memory * gib}
	}
	full := func(n *placement.Node) { n.GPUs[0].Utilization, n.GPUs[0].Provisionable = 1, false }
	for name, tc := range map[string]struct {
		method  placement.Method
		node    placement.Node
		request placement.Request
		want    task.Seconds // 0: not known
	}{
		"the first task's end is enough": {placement.Predictive, open("a", 80, w(5, 4, 0), w(7, 3, 0)), placement.Request{Deadline: 9, Estimate: 3}, 4},
		"both ends are needed":           {placement.Predictive, open("a", 80, w(5, 4, 0), w(7, 3, 0)), placement.Request{Deadline: 9, Estimate: 7}, 7},
		"a later deadline is in the way": {placement.Predictive, open("a", 80, w(20, 18, 0)), placement.Request{Deadline: 9, Estimate: 3}, 18},
		"memory comes back":              {placement.Predictive, open("a", 2, w(5, 4, 3), w(90, 2, 5)), placement.Request{GPUMemory: 9 * gib}, 6},
		"memory that nobody queued has":  {placement.Predictive, open("a", 2, w(5, 4, 3)), placement.Request{GPUMemory: 9 * gib}, 0},
		"no work is known":               {placement.Predictive, idle("a", 80, full), placement.Request{Deadline: 9, Estimate: 3}, 0},
		"it fits nowhere":                {placement.Predictive, open("a", 80, w(5, 4, 0)), placement.Request{Deadline: 2, Estimate: 3}, 0},
		"stale":                          {placement.Predictive, placement.Node{Name: "a", GPUs: open("a", 80, w(5, 4, 0)).GPUs}, placement.Request{Deadline: 9, Estimate: 8}, 0},
		"paper, in use": {placement.Paper, idle("a", 80, full, func(n *placement.Node) {
			n.GPUs[0].Work = []placement.Work{w(5, 4, 0), w(8, 2, 0)}
		}), placement.Request{Deadline: 9}, 6},
		"paper, a miss": {placement.Paper, idle("a", 80, func(n *placement.Node) {
			n.GPUs[0].Provisionable, n.GPUs[0].Work = false, []placement.Work{w(5, 4, 0)}
		}), placement.Request{Deadline: 9}, 0},
		"paper, float": {placement.Paper, idle("a", 80, func(n *placement.Node) {
			n.Float, n.GPUs[0].Work = 3, []placement.Work{w(5, 4, 0)}
		}), placement.Request{Deadline: 9}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.method.Rank([]placement.Node{tc.node}, tc.request, now)
			if r[0].Candidate() || r[0].OpensIn != tc.want {
				t.Fatalf("candidate %v, opens in %v, want %v", r[0].Candidate(), r[0].OpensIn, tc.want)
			}
			known := strings.Contains(r.Expected(), "a is expected to in ")
			if known != (tc.want > 0) || !known && !strings.Contains(r.Expected(), "not known") {
				t.Errorf("%q", r.Expected())
			}
		})
	}
}

// What a refusal promises holds: with the work that is over by then gone, the node takes it.
func TestPromisedTimeHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var work []placement.Work
		for i, n := 0, rapid.IntRange(1, 6).Draw(t, "n"); i < n; i++ {
			work = append(work, placement.Work{Due: task.Seconds(10*i + rapid.IntRange(1, 9).Draw(t, "due")), Left: task.Seconds(rapid.IntRange(1, 15).Draw(t, "left"))})
		}
		req := placement.Request{Deadline: task.Seconds(rapid.IntRange(1, 60).Draw(t, "deadline")), Estimate: task.Seconds(rapid.IntRange(1, 40).Draw(t, "estimate"))}
		v := placement.Predictive.Rank([]placement.Node{open("a", 8, work...)}, req, now)[0]
		if v.Candidate() || v.OpensIn == 0 {
			if fits := placement.Predictive.Rank([]placement.Node{open("a", 8)}, req, now)[0].Candidate(); fits != (v.Candidate() || v.OpensIn > 0) {
				t.Fatalf("fits an idle GPU: %v, and when is not known", fits)
			}
			return
		}
		clock := task.Seconds(0)
		for clock < v.OpensIn {
			clock += work[0].Left
			work = work[1:]
		}
		for i := range work {
			work[i].Due -= clock
		}
		if then := placement.Predictive.Rank([]placement.Node{open("a", 8, work...)}, req, now)[0]; clock != v.OpensIn || !then.Candidate() {
			t.Fatalf("promised in %v; then %+v", v.OpensIn, then.Reasons)
		}
	})
}
