package placer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
)

func pod(name string) reservation.Pod {
	return reservation.Pod{Namespace: "team", Name: name, UID: "uid-" + name}
}

// TestPlacePod: a pod gets the best of the nodes that its scheduler leaves, and what is reserved for
// it keeps others away until it is asked about again.
func TestPlacePod(t *testing.T) {
	for _, method := range []placement.Method{placement.Paper, placement.Predictive} {
		t.Run(string(method), func(t *testing.T) {
			w, p := start(t, method, node("a", 40), node("b", 20), node("c", 10))
			w.short = true
			place := func(name string, need placer.Request, among ...string) (string, placement.Ranking) {
				t.Helper()
				e, r, err := p.PlacePod(t.Context(), pod(name), among, need)
				if err != nil {
					t.Fatal(err)
				}
				return e.Node, r
			}
			all := []string{"a", "b", "c", "unknown"}
			if got, r := place("one", need(9, 15), all...); got != "a" || len(r) != 3 {
				t.Errorf("one: %q of %d", got, len(r))
			}
			if got, r := place("two", need(9, 15), "b", "c"); got != "b" || len(r) != 2 {
				t.Errorf("two, not on a: %q of %d", got, len(r))
			}
			if got, r := place("three", need(9, 15), "b", "c"); got != "" || len(r) != 2 {
				t.Errorf("three, where nothing is left: %q of %d", got, len(r))
			}
			if got, _ := place("one", need(9, 39), all...); got != "a" || len(p.List()) != 2 {
				t.Errorf("one again: %q, reserved %+v", got, p.List())
			}
			if got, _ := place("one", need(9, 60), all...); got != "" || len(p.List()) != 1 {
				t.Errorf("one, too large: %q, reserved %+v", got, p.List())
			}
			if got, _ := place("four", need(9, 1)); got != "" {
				t.Errorf("no node is left: %q", got)
			}
			w.err = errors.New("prometheus is down")
			var down *placer.SourceError
			if _, _, err := p.PlacePod(t.Context(), pod("five"), all, need(9, 1)); !errors.As(err, &down) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// TestPodOfNobodyWaiting: an answer that comes too late reserves nothing.
func TestPodOfNobodyWaiting(t *testing.T) {
	_, p := start(t, placement.Predictive, node("a", 40))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.PlacePod(ctx, pod("one"), []string{"a"}, need(9, 15)); !errors.Is(err, context.Canceled) || len(p.List()) != 0 {
		t.Errorf("%v, reserved %+v", err, p.List())
	}
}

// TestPodClaimsItsReservation: it holds while the pod is there, becomes its container's that uses the GPU, on
// the GPU that it got, and ends with it.
func TestPodClaimsItsReservation(t *testing.T) {
	two := node("a", 40)
	two.GPUs = append(two.GPUs, two.GPUs[0])
	two.GPUs[1].UUID, two.GPUs[1].MemoryFree = "GPU-other", 30*gib
	w, p := start(t, placement.Paper, two)
	settle := func(want reservation.State, gpu string) {
		t.Helper()
		if err := p.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		switch list := p.List(); {
		case want == "" && len(list) == 0:
		case len(list) != 1 || list[0].State != want || list[0].GPU != gpu:
			t.Errorf("want %s on %s: %+v", want, gpu, list)
		}
	}
	if _, _, err := p.PlacePod(t.Context(), pod("one"), []string{"a"}, need(9, 15)); err != nil {
		t.Fatal(err)
	}
	on := placer.PodOn{Node: "a", Pod: "team/one"}
	w.pods = map[placer.PodOn]placer.Use{on: {}}
	for range 5 { // its image is there, its program begins slowly
		w.pass(placer.DefaultTTL * 3 / 4)
		settle(reservation.Assumed, "GPU-a")
	}
	w.pods[on] = placer.Use{Container: "c1", GPU: "GPU-other"}
	w.tenants["c1"] = placer.Tenant{Memory: map[string]uint64{"GPU-other": 5 * gib}, Tasks: 1}
	settle(reservation.Created, "GPU-other")
	settle(reservation.Confirmed, "GPU-other")
	r, err := p.Explain(t.Context(), placer.Request{})
	if err != nil || r[0].Node.GPUs[0].Reserved != 0 || r[0].Node.GPUs[1].Reserved != 10*gib {
		t.Errorf("%v: %+v", err, r[0].Node.GPUs)
	}
	// Another pod of its name does not get what is its.
	if _, _, err := p.PlacePod(t.Context(), pod("one"), []string{"a"}, need(9, 5)); err != nil || len(p.List()) != 2 {
		t.Errorf("%v, reserved %+v", err, p.List())
	}
}

// TestPodThatNeverAppears: what is reserved for it expires.
func TestPodThatNeverAppears(t *testing.T) {
	w, p := start(t, placement.Predictive, node("a", 40))
	if _, _, err := p.PlacePod(t.Context(), pod("one"), []string{"a"}, need(9, 15)); err != nil {
		t.Fatal(err)
	}
	w.pods = map[placer.PodOn]placer.Use{{Node: "b", Pod: "team/one"}: {}} // it went elsewhere
	w.pass(placer.DefaultTTL - time.Second)
	if err := p.Settle(t.Context()); err != nil || len(p.List()) != 1 {
		t.Errorf("%v: %+v", err, p.List())
	}
	w.pass(time.Second)
	if err := p.Settle(t.Context()); err != nil || len(p.List()) != 0 {
		t.Errorf("%v: %+v", err, p.List())
	}
}

// TestPodsAreNotPromisedTheSame: whatever pods are asked about, at once and again, no GPU is promised more than it has,
// and no pod twice.
func TestPodsAreNotPromisedTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		var cleanups []func()
		defer func() {
			for _, f := range cleanups {
				f()
			}
		}()
		var nodes []placement.Node
		var names []string
		for i := range rapid.IntRange(1, 4).Draw(rt, "nodes") {
			n := node(fmt.Sprint("n", i), rapid.Uint64Range(1, 40).Draw(rt, "free"))
			nodes, names = append(nodes, n), append(names, n.Name)
		}
		method := rapid.SampledFrom([]placement.Method{placement.Paper, placement.Predictive}).Draw(rt, "method")
		_, p := start(&host{dir, &cleanups, rt}, method, nodes...)
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			var all sync.WaitGroup
			for range rapid.IntRange(1, 6).Draw(rt, "pods") {
				who := pod(fmt.Sprint("p", rapid.IntRange(0, 8).Draw(rt, "pod")))
				memory := rapid.Uint64Range(0, 20).Draw(rt, "memory")
				among := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(rt, "among")
				all.Go(func() {
					if _, _, err := p.PlacePod(context.Background(), who, among, placer.Request{Request: placement.Request{GPUMemory: memory * gib}}); err != nil {
						panic(err)
					}
				})
			}
			all.Wait()
			promised, seen := map[string]uint64{}, map[reservation.Pod]bool{}
			for _, e := range p.List() {
				promised[e.Node] += e.Memory
				if seen[e.Pod] {
					rt.Fatalf("%+v has two", e.Pod)
				}
				seen[e.Pod] = true
			}
			for _, n := range nodes {
				if promised[n.Name] > n.GPUs[0].MemoryFree {
					rt.Fatalf("%s: %s of %s is promised", n.Name, placement.Bytes(promised[n.Name]), placement.Bytes(n.GPUs[0].MemoryFree))
				}
			}
		}
	})
}
