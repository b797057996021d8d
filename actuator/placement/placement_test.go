package placement_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

const gib = 1 << 30

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// idle is a fresh node with one idle GPU that has n GiB free.
func idle(name string, n uint64, change ...func(*placement.Node)) placement.Node {
	node := placement.Node{
		Name: name, Seen: now, Fresh: true, Provisionable: true, Float: task.Seconds(math.Inf(1)),
		MemoryFree: n * gib, Score: float64(n * gib),
		GPUs: []placement.GPU{{UUID: "GPU-" + name, Provisionable: true, MemoryFree: n * gib,
			Utilization: 0.1}},
	}
	for _, c := range change {
		c(&node)
	}
	return node
}

func barred(g *placement.GPU) { g.Provisionable = false }

func names(r placement.Ranking) string {
	var out []string
	for _, v := range r {
		if v.Candidate() {
			out = append(out, v.Node.Name+"/"+v.GPU)
		}
	}
	return strings.Join(out, " ")
}

func TestRank(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes      []placement.Node
		request    placement.Request
		candidates string
		summary    string
	}{
		"no nodes": {nil, placement.Request{Deadline: 9}, "", "0/0 nodes"},
		"most free memory first": {
			[]placement.Node{idle("a", 10), idle("b", 40), idle("c", 20)}, placement.Request{Deadline: 9},
			"b/GPU-b c/GPU-c a/GPU-a", "3/3 nodes",
		},
		"equal memory: by name": {
			[]placement.Node{idle("b", 10), idle("a", 10)}, placement.Request{}, "a/GPU-a b/GPU-b", "2/2 nodes",
		},
		"the deadline must be below the node's float": {
			[]placement.Node{
				idle("equal", 40, func(n *placement.Node) { n.Float = 9 }),
				idle("less", 40, func(n *placement.Node) { n.Float = -3 }),
				idle("more", 10, func(n *placement.Node) { n.Float = 9.1 }),
			},
			placement.Request{Deadline: 9},
			"more/GPU-more", "1/3 nodes: 2 float short (deadline 9s, float 9s)",
		},
		"without a deadline no float is too short": {
			[]placement.Node{idle("a", 10, func(n *placement.Node) { n.Float = -3 })}, placement.Request{}, "a/GPU-a", "1/1 nodes",
		},
		"stale": {
			[]placement.Node{
				idle("gone", 10, func(n *placement.Node) { n.Fresh, n.Seen, n.GPUs = false, now.Add(-95*time.Second), nil }),
				idle("hung", 10, func(n *placement.Node) { n.Fresh = false }),
			},
			placement.Request{}, "", "0/2 nodes: 2 stale 95s",
		},
		"why a GPU is barred": {
			[]placement.Node{
				idle("a-missed", 10, func(n *placement.Node) { barred(&n.GPUs[0]) }),
				idle("b-busy", 10, func(n *placement.Node) { barred(&n.GPUs[0]); n.GPUs[0].Utilization = 1 }),
				idle("c-full", 10, func(n *placement.Node) {
					barred(&n.GPUs[0])
					n.GPUs[0].MemoryFree, n.GPUs[0].MemoryTotal = 12<<20, 80*gib
				}),
				idle("d-mig-full", 10, func(n *placement.Node) {
					barred(&n.GPUs[0])
					n.GPUs[0].MemoryFree, n.GPUs[0].Utilization = 0, task.Ratio(math.NaN())
				}),
				idle("e-none", 0, func(n *placement.Node) { n.GPUs = nil }),
			},
			placement.Request{}, "",
			"0/5 nodes: 2 GPU memory full (free 12MiB), 1 a container there missed its last deadline, 1 GPU use 100%, 1 no GPU",
		},
		"memory short": {
			[]placement.Node{idle("a", 12), idle("b", 19), idle("c", 20), idle("d", 5)}, placement.Request{GPUMemory: 20 * gib},
			"c/GPU-c", "1/4 nodes: 3 GPU memory short (need 20GiB, free 12GiB)",
		},
		"one GPU that can is enough, and gets it": {
			[]placement.Node{idle("a", 10, func(n *placement.Node) {
				full := n.GPUs[0]
				full.UUID, full.MemoryFree = "GPU-full", 0
				barred(&full)
				busy := n.GPUs[0]
				busy.UUID, busy.MemoryFree, busy.Utilization = "GPU-busy", 80*gib, 1
				barred(&busy)
				less := n.GPUs[0]
				less.UUID, less.MemoryFree = "GPU-less", 9*gib
				n.GPUs = []placement.GPU{full, busy, less, n.GPUs[0]}
			})},
			placement.Request{Deadline: 9, GPUMemory: 10 * gib}, "a/GPU-a", "1/1 nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := placement.Paper.Rank(tc.nodes, tc.request, now)
			if got := names(r); got != tc.candidates {
				t.Errorf("candidates = %q, want %q", got, tc.candidates)
			}
			if got := r.Summary(); got != tc.summary {
				t.Errorf("summary = %q, want %q", got, tc.summary)
			}
			best, ok := r.Best()
			if ok != (tc.candidates != "") || (ok && !strings.HasPrefix(tc.candidates, best.Node.Name+"/")) {
				t.Errorf("best = %v, %v", best.Node.Name, ok)
			}
		})
	}
}

// Whatever the facts are: every node is judged once, a candidate meets the
// request and has a GPU of its own node, a refused node says why, candidates
// come in the order of their scores, and the order of the facts does not matter.
func TestRankHoldsForAnyFacts(t *testing.T) {
	bytes := rapid.Uint64Range(0, 80*gib)
	seconds := rapid.OneOf(rapid.Float64Range(-100, 100), rapid.Just(math.Inf(1)))
	gpu := rapid.Custom(func(t *rapid.T) placement.GPU {
		g := placement.GPU{
			UUID: rapid.StringMatching(`GPU-[0-9a-f]{8}`).Draw(t, "uuid"), Provisionable: rapid.Bool().Draw(t, "provisionable"),
			MemoryFree: bytes.Draw(t, "free"), Utilization: task.Ratio(rapid.Float64Range(0, 1).Draw(t, "use")),
		}
		return g
	})
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) placement.Node {
			n := placement.Node{
				Name: rapid.StringMatching(`[a-z]{1,6}`).Draw(t, "name"), Fresh: rapid.Bool().Draw(t, "fresh"),
				Float: task.Seconds(seconds.Draw(t, "float")), GPUs: rapid.SliceOfN(gpu, 0, 4).Draw(t, "gpus"),
			}
			for _, g := range n.GPUs {
				if g.Provisionable {
					n.Score = max(n.Score, float64(g.MemoryFree))
				}
			}
			return n
		}), 0, 8, func(n placement.Node) string { return n.Name }).Draw(t, "nodes")
		req := placement.Request{Deadline: task.Seconds(rapid.Float64Range(0, 100).Draw(t, "deadline")), GPUMemory: bytes.Draw(t, "need")}

		r := placement.Paper.Rank(nodes, req, now)
		if len(r) != len(nodes) {
			t.Fatalf("%d verdicts on %d nodes", len(r), len(nodes))
		}
		for i, v := range r {
			if !v.Candidate() {
				if v.GPU != "" || v.Reasons[0].Text == "" {
					t.Fatalf("%s refused: %+v", v.Node.Name, v)
				}
				continue
			}
			if i > 0 && (!r[i-1].Candidate() || r[i-1].Node.Score < v.Node.Score) {
				t.Fatalf("%s comes too late", v.Node.Name)
			}
			at := slices.IndexFunc(v.Node.GPUs, func(g placement.GPU) bool {
				return g.UUID == v.GPU && g.Provisionable && g.MemoryFree >= req.GPUMemory
			})
			if at < 0 || !v.Node.Fresh || (req.Deadline > 0 && req.Deadline >= v.Node.Float) {
				t.Fatalf("%+v cannot take %+v", v, req)
			}
		}
		slices.Reverse(nodes)
		again := placement.Paper.Rank(nodes, req, now)
		for i := range r {
			if again[i].Node.Name != r[i].Node.Name || again[i].GPU != r[i].GPU {
				t.Fatalf("the order of the facts matters: %s, %s", again[i].Node.Name, r[i].Node.Name)
			}
		}
	})
}

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1KiB", 12 * gib: "12GiB", 3 * gib / 2: "1.5GiB", 1 << 50: "1024TiB"} {
		if got := placement.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
}
