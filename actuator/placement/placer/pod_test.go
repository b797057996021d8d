package placer_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

// An image that took longer than the deadline, elsewhere, closes no idle GPU to a pod or container; one with earlier work it does.
func TestAnImageThatTookLonger(t *testing.T) {
	busy := node("a", 80)
	busy.GPUs[0].Work = []placement.Work{{Container: "w", Due: 1, Left: 0.5}}
	w, p := start(t, placement.Predictive, busy, node("b", 20))
	w.history["pytorch"] = 7200
	req := need(9, 0)
	req.Image = "pytorch"
	if e, r, err := p.PlacePod(t.Context(), pod("one"), []string{"a", "b"}, req); err != nil || e.Node != "b" {
		t.Errorf("on %q, %v: %s", e.Node, err, r.Summary())
	}
	if e, _, err := p.PlacePod(t.Context(), pod("two"), []string{"a"}, req); err != nil || e.Node != "" {
		t.Errorf("behind other work: on %q, %v", e.Node, err)
	}
	w, p = start(t, placement.Predictive, busy, node("b", 20))
	w.history["pytorch"] = 7200
	if got, r, err := p.Place(t.Context(), req); err != nil || got[0].Node != "b" {
		t.Errorf("a container: %+v, %v: %s", got, err, r.Summary())
	}
	req.Estimate = 7200
	if got, _, err := p.Place(t.Context(), req); err == nil {
		t.Errorf("one whose user says that it takes longer: %+v", got)
	}
}

// What another scheduler places is reserved like any other, beside the reservations of others.
func TestPlaceAmong(t *testing.T) {
	_, p := start(t, placement.Predictive, node("a", 80), node("b", 80), node("c", 20))
	var got []string
	for range 4 {
		e, _, err := p.PlaceAmong(t.Context(), []string{"a", "c"}, need(0, 30))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Node)
	}
	if strings.Join(got, ",") != "a,a,," || len(p.List()) != 2 {
		t.Errorf("on %q, reserved %+v", got, p.List())
	}
}

// An answer that comes too late reserves nothing.
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
	// It is deleted, and its container goes.
	delete(w.pods, on)
	delete(w.tenants, "c1")
	w.pass(29 * time.Second)
	settle(reservation.Confirmed, "GPU-other")
	w.pass(time.Second)
	settle("", "")
}

// TestPodMadeAnew: whatever has become of a pod, what is reserved under its name is of the pod that was asked about
// last.
func TestPodMadeAnew(t *testing.T) {
	on := placer.PodOn{Node: "a", Pod: "team/one"}
	for name, far := range map[string]struct {
		// comes is what the exporters see of the first pod before it is deleted.
		comes func(*world)
		state reservation.State
	}{
		"before it is bound": {func(*world) {}, reservation.Assumed},
		"bound, its container there": {func(w *world) {
			w.pods = map[placer.PodOn]placer.Use{on: {}}
		}, reservation.Assumed},
		"with GPU memory": {func(w *world) {
			w.pods = map[placer.PodOn]placer.Use{on: {Container: "c1", GPU: "GPU-a"}}
			w.hold("c1", "a", 5*gib, 0)
		}, reservation.Created},
		"with a task": {func(w *world) {
			w.pods = map[placer.PodOn]placer.Use{on: {Container: "c1", GPU: "GPU-a"}}
			w.hold("c1", "a", 5*gib, 1)
		}, reservation.Confirmed},
	} {
		for then, tc := range map[string]struct {
			uid    string
			memory uint64 // GiB; 0: it asks for nothing
			among  []string
			node   string // where it is reserved
		}{
			"another UID":                  {"uid-2", 15, []string{"a", "b"}, "a"},
			"another UID, elsewhere":       {"uid-2", 15, []string{"b"}, "b"},
			"another UID, nowhere":         {"uid-2", 60, []string{"a", "b"}, ""},
			"another UID, asks nothing":    {"uid-2", 0, []string{"a", "b"}, ""},
			"the same UID":                 {"uid-1", 15, []string{"a", "b"}, "a"},
			"the same UID, asks for other": {"uid-1", 3, []string{"a", "b"}, "a"},
		} {
			t.Run(name+", then "+then, func(t *testing.T) {
				dir := t.TempDir()
				var cleanups []func()
				w, p := start(&host{dir, &cleanups, t}, placement.Paper, node("a", 20), node("b", 16))
				first, other := reservation.Pod{Namespace: "team", Name: "one", UID: "uid-1"}, reservation.Pod{Namespace: "else", Name: "one", UID: "uid-3"}
				for _, who := range []reservation.Pod{first, other} {
					if _, _, err := p.PlacePod(t.Context(), who, []string{"a"}, need(9, 2)); err != nil {
						t.Fatal(err)
					}
				}
				if _, _, err := p.PlacePod(t.Context(), first, []string{"a"}, need(9, 10)); err != nil {
					t.Fatal(err)
				}
				far.comes(w)
				for range 2 {
					if err := p.Settle(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if got := of(p, "team"); len(got) != 1 || got[0].State != far.state {
					t.Fatalf("reserved before: %+v", got)
				}
				w.hold("c1", "a", 0, 0) // it is deleted

				next := reservation.Pod{Namespace: "team", Name: "one", UID: tc.uid}
				for range 3 { // asked again, it is the same
					if tc.memory == 0 {
						if err := p.ForgetPod(t.Context(), next); err != nil {
							t.Fatal(err)
						}
						continue
					}
					if e, _, err := p.PlacePod(t.Context(), next, tc.among, need(9, tc.memory)); err != nil || e.Node != tc.node {
						t.Fatalf("it goes to %q (%v)", e.Node, err)
					}
				}
				want := reservation.Entry{Node: tc.node, Memory: tc.memory * gib, Pod: next, State: reservation.Assumed}
				check := func(list []reservation.Entry) {
					t.Helper()
					switch {
					case tc.node == "" && len(list) == 0:
					case len(list) != 1 || tc.node == "", list[0].Pod != want.Pod, list[0].Node != want.Node, list[0].Memory != want.Memory, list[0].State != want.State, list[0].Container != "":
						t.Errorf("reserved %+v, want %+v", list, want)
					}
				}
				check(of(p, "team"))
				if got := of(p, "else"); len(got) != 1 || got[0].Pod != other {
					t.Errorf("of the other namespace: %+v", got)
				}
				r, err := p.Explain(t.Context(), placer.Request{})
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range r {
					want := map[string]uint64{"a": 2 * gib}[v.Node.Name]
					if v.Node.Name == tc.node {
						want += tc.memory * gib
					}
					if g := v.Node.GPUs[0]; g.Reserved != want {
						t.Errorf("%s: %s is reserved, want %s", v.Node.Name, placement.Bytes(g.Reserved), placement.Bytes(want))
					}
				}
				// It is on disk.
				for _, f := range cleanups {
					f()
				}
				l, _, err := reservation.Open(filepath.Join(dir, "placements.db"), w.Now())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Close() }()
				check(slices.DeleteFunc(l.List(), func(e reservation.Entry) bool { return e.Pod.Namespace != "team" }))
			})
		}
	}
}

// of are the reservations of a namespace's pods.
func of(p *placer.Placer, namespace string) []reservation.Entry {
	return slices.DeleteFunc(p.List(), func(e reservation.Entry) bool { return e.Pod.Namespace != namespace })
}

// TestPodsFormerContainer: Prometheus knows pods by their names, so it shows the container of the earlier one for a
// while. That one ends without what is reserved for its successor.
func TestPodsFormerContainer(t *testing.T) {
	w, p := start(t, placement.Paper, node("a", 40))
	on := placer.PodOn{Node: "a", Pod: "team/one"}
	place := func(uid string) {
		t.Helper()
		if _, _, err := p.PlacePod(t.Context(), reservation.Pod{Namespace: "team", Name: "one", UID: uid}, []string{"a"}, need(9, 10)); err != nil {
			t.Fatal(err)
		}
	}
	settle := func(state reservation.State, container string) {
		t.Helper()
		if err := p.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if list := p.List(); len(list) != 1 || list[0].State != state || list[0].Container != container {
			t.Errorf("want %s of %q: %+v", state, container, list)
		}
	}
	place("uid-1")
	w.pods = map[placer.PodOn]placer.Use{on: {Container: "c1", GPU: "GPU-a"}}
	w.hold("c1", "a", 5*gib, 1)
	settle(reservation.Created, "c1")
	settle(reservation.Confirmed, "c1")

	place("uid-2")
	settle(reservation.Assumed, "")
	place("uid-2") // its first attempt failed
	settle(reservation.Assumed, "")
	place("uid-3") // and it was deleted
	settle(reservation.Assumed, "")

	w.pods[on] = placer.Use{Container: "c3", GPU: "GPU-a"}
	w.hold("c1", "a", 0, 0)
	w.hold("c3", "a", 1*gib, 1)
	settle(reservation.Created, "c3")
	settle(reservation.Confirmed, "c3")
}

// TestLateQuestionAboutPod: a question that nobody waits for any more takes nothing from the pod that has the name by
// now.
func TestLateQuestionAboutPod(t *testing.T) {
	_, p := start(t, placement.Paper, node("a", 40))
	successor := reservation.Pod{Namespace: "team", Name: "one", UID: "uid-2"}
	if _, _, err := p.PlacePod(t.Context(), successor, []string{"a"}, need(9, 10)); err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := p.PlacePod(late, reservation.Pod{Namespace: "team", Name: "one", UID: "uid-1"}, []string{"a"}, need(9, 10))
	if list := p.List(); !errors.Is(err, context.Canceled) || len(list) != 1 || list[0].Pod != successor {
		t.Errorf("%v, reserved %+v", err, list)
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

// TestPodsAreNotPromisedTheSame: whatever pods are asked about, at once, again and made anew, no GPU is promised more
// than it has, and nothing is reserved twice under one name.
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
				who.UID = fmt.Sprint("uid-", rapid.IntRange(0, 2).Draw(rt, "uid"))
				memory := rapid.Uint64Range(0, 20).Draw(rt, "memory")
				among := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(rt, "among")
				all.Go(func() {
					if _, _, err := p.PlacePod(context.Background(), who, among, placer.Request{Request: placement.Request{GPUMemory: memory * gib}}); err != nil {
						panic(err)
					}
				})
			}
			all.Wait()
			promised, seen := map[string]uint64{}, map[string]bool{}
			for _, e := range p.List() {
				promised[e.Node] += e.Memory
				if seen[e.Pod.Name] {
					rt.Fatalf("%s has two", e.Pod)
				}
				seen[e.Pod.Name] = true
			}
			for _, n := range nodes {
				if promised[n.Name] > n.GPUs[0].MemoryFree {
					rt.Fatalf("%s: %s of %s is promised", n.Name, placement.Bytes(promised[n.Name]), placement.Bytes(n.GPUs[0].MemoryFree))
				}
			}
		}
	})
}
