package placer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/exporter/task"
)

// fleet is n equal nodes.
func fleet(n int, free uint64) []placement.Node {
	nodes := make([]placement.Node, n)
	for i := range nodes {
		nodes[i] = node(fmt.Sprintf("n%03d", i), free)
	}
	return nodes
}

// Of a large fleet no decision reads all nodes, however many places are taken: it
// asks for longer lists.
func TestALargeFleetIsReadInPart(t *testing.T) {
	for _, m := range []placement.Method{placement.Paper, placement.Predictive} {
		t.Run(string(m), func(t *testing.T) {
			w, p := start(t, m, fleet(100, 80)...)
			w.short = true
			taken := map[string]int{}
			for range 100 {
				got, judged, err := p.Place(t.Context(), need(9, 60))
				if err != nil || !judged.Partial {
					t.Fatalf("%v, partial %v", err, judged.Partial)
				}
				taken[got[0].Node]++
			}
			if len(taken) != 100 {
				t.Errorf("%d of 100 nodes are taken", len(taken))
			}
			for _, a := range w.asked {
				if a.All {
					t.Fatal("all nodes were read")
				}
			}
			// Now there is no room: the refusal is explained for each node.
			_, _, err := p.Place(t.Context(), need(9, 60))
			if err == nil || err.Error() != "no node can take it: 0/100 nodes: 100 GPU memory short (need 60GiB, free 80GiB − 60GiB reserved); n000 is expected to in 9s, when tasks queued there have ended" {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// Without a size nothing is reserved, and equal GPUs get one container each all
// the same.
func TestEqualGPUsOfALargeFleetShare(t *testing.T) {
	w, p := start(t, placement.Paper, fleet(100, 80)...)
	w.short = true
	taken := map[string]int{}
	for range 100 {
		got, _, err := p.Place(t.Context(), placer.Request{})
		if err != nil {
			t.Fatal(err)
		}
		taken[got[0].Node]++
	}
	if len(taken) != 100 {
		t.Errorf("100 containers are on %d nodes", len(taken))
	}
}

func TestRefusalsOfALargeFleet(t *testing.T) {
	nodes := fleet(100, 20)
	nodes[7].Fresh = false
	w, p := start(t, placement.Paper, nodes...)
	w.short = true
	for says, req := range map[string]placer.Request{
		`no node "z": known are n000, n001, `:                                {Request: placement.Request{Node: "z"}},
		"no GPU is that large: need 200GiB, the largest has 80GiB":           need(9, 200),
		"0/1 nodes: 1 stale":                                                 {Request: placement.Request{Node: "n007"}},
		"0/100 nodes: 99 GPU memory short (need 30GiB, free 20GiB), 1 stale": need(9, 30),
		"only 99 of 120 find a place: 0/100 nodes: 99 GPU memory short (":    {Request: placement.Request{GPUMemory: 15 * gib}, Count: 120},
	} {
		_, _, err := p.Place(t.Context(), req)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error = %v, want %s", err, says)
		}
	}
	if len(p.List()) != 0 {
		t.Errorf("half of it was promised: %v", p.List())
	}
	if got, _, err := p.Place(t.Context(), placer.Request{Request: placement.Request{GPUMemory: 15 * gib}, Count: 99}); err != nil || len(got) != 99 {
		t.Errorf("99 at once: %d, %v", len(got), err)
	}
	if _, err := p.Check(t.Context(), p.List()[0].ID); err != nil {
		t.Errorf("check: %v", err)
	}
	w.err = errors.New("prometheus is down")
	var down *placer.SourceError
	if _, _, err := p.Place(t.Context(), need(9, 1)); !errors.As(err, &down) {
		t.Errorf("error = %v", err)
	}
}

// Whatever is promised already: with short lists the placer finds as good a GPU as
// with all facts, and refuses only what it refuses then.
func TestShortListsFindTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var cleanups []func()
		defer func() {
			for i := range cleanups {
				cleanups[len(cleanups)-1-i]()
			}
		}()
		m := rapid.SampledFrom([]placement.Method{placement.Paper, placement.Predictive}).Draw(rt, "method")
		nodes := fleet(rapid.IntRange(12, 60).Draw(rt, "nodes"), 80)
		for i := range nodes {
			g := &nodes[i].GPUs[0]
			g.MemoryFree = rapid.Uint64Range(0, 9).Draw(rt, "free") * 8 * gib
			nodes[i].Float = task.Seconds(rapid.IntRange(0, 60).Draw(rt, "float"))
			if rapid.IntRange(0, 2).Draw(rt, "works") > 0 {
				due := task.Seconds(rapid.IntRange(1, 40).Draw(rt, "due"))
				g.Work = []placement.Work{{Container: "c", Due: due, Left: due * task.Seconds(rapid.IntRange(1, 11).Draw(rt, "left")) / 10}}
			}
		}
		w, short := start(&host{t.TempDir(), &cleanups, rt}, m, nodes...)
		w.short = true
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			req := need(task.Seconds(rapid.IntRange(0, 50).Draw(rt, "deadline")), 8*rapid.Uint64Range(0, 6).Draw(rt, "memory"))
			req.Estimate = task.Seconds(rapid.IntRange(0, 10).Draw(rt, "estimate"))
			// What each would choose, on the same reservations.
			ranking, err := short.Explain(t.Context(), req)
			if err != nil {
				rt.Fatal(err)
			}
			want, possible := ranking.Best()
			got, _, err := short.Place(t.Context(), req)
			if (err == nil) != possible {
				rt.Fatalf("%+v: %v, and with all facts %s", req, err, ranking.Summary())
			}
			for _, v := range ranking {
				if err == nil && v.Node.Name == got[0].Node && v.Score != want.Score {
					rt.Fatalf("%+v: %s with %v, the best is %s with %v", req, got[0].Node, v.Score, want.Node.Name, want.Score)
				}
			}
		}
	})
}
