package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/internal/kubetest"
)

// TestKubeSchedulerPlaces: pods that ask for something of Laxity go where the placer would place them, and others
// where the scheduler would without it.
func TestKubeSchedulerPlaces(t *testing.T) {
	w := newWorld(t, asItIs, patient)
	// By the scheduler's own scores plain-1 is best and gpu-2 worst.
	w.node("gpu-1", laxityNode{free: 70, work: 8}, "laxity")
	w.node("gpu-2", laxityNode{free: 60}, "laxity")
	w.node("gpu-3", laxityNode{free: 2}, "laxity")
	w.node("plain-1", laxityNode{})
	w.node("plain-2", laxityNode{})
	for name, milli := range map[string]int{"gpu-1": 2000, "gpu-2": 6000, "gpu-3": 2000, "plain-2": 2000} {
		w.AddPod(kubetest.Pod{Name: "fills-" + name, MilliCPU: milli, Selector: map[string]string{"kubernetes.io/hostname": name}})
		w.bound("fills-"+name, name)
	}

	if best := w.best(placement.Request{Deadline: 9, GPUMemory: 4 * gib}); best != "gpu-2" {
		t.Fatalf("the placer would choose %s", best)
	}
	w.AddPod(kubetest.Pod{Name: "deadline", GPUs: 1, Annotations: annotations("deadline=9s", "gpu-memory=4GiB")})
	w.bound("deadline", "gpu-2")

	// The work reserved for it counts: a second one has to go elsewhere, if not to gpu-1, where tasks are due before.
	if best := w.best(placement.Request{Deadline: 9, GPUMemory: 1 * gib}); best != "gpu-3" {
		t.Fatalf("the placer would choose %s", best)
	}
	w.AddPod(kubetest.Pod{Name: "second", Annotations: annotations("deadline=9s", "gpu-memory=1GiB")})
	w.bound("second", "gpu-3")

	w.AddPod(kubetest.Pod{Name: "foreign"})
	w.bound("foreign", "plain-1")
	w.AddPod(kubetest.Pod{Name: "unreadable", Annotations: annotations("deadline=soon")})
	w.bound("unreadable", "plain-1")
	w.AddPod(kubetest.Pod{Name: "share", Annotations: annotations("share=30%")})
	w.bound("share", "plain-1")

	// No node with Laxity has room: it goes as it would without.
	w.AddPod(kubetest.Pod{Name: "large", GPUs: 1, Annotations: annotations("gpu-memory=75GiB")})
	w.bound("large", "plain-1")

	// Where only nodes with Laxity may take it, it waits, and the pod says why.
	w.AddPod(kubetest.Pod{Name: "waits", GPUs: 1, Annotations: annotations("gpu-memory=75GiB"), Selector: map[string]string{"laxity": "yes"}})
	if says, err := w.Refused(w.ctx, "waits"); err != nil || !strings.Contains(says, "GPU memory short (need 75GiB, free 70GiB)") {
		t.Errorf("it says %q (%v)", says, err)
	}
	// A node that comes is tried at once.
	w.node("gpu-4", laxityNode{free: 79}, "laxity")
	w.bound("waits", "gpu-4")
}

// TestKubeSchedulerLikesTheSame: pods that ask for nothing of Laxity go where they go without an extender, one after
// another, until no CPU is left.
func TestKubeSchedulerLikesTheSame(t *testing.T) {
	placed := func(change func(map[string]any)) (nodes []string) {
		w := newWorld(t, asItIs, change)
		for i, name := range []string{"gpu-1", "gpu-2", "plain-1", "plain-2"} {
			n := laxityNode{}
			if strings.HasPrefix(name, "gpu") {
				n.free = 10
			}
			w.node(name, n)
			w.AddPod(kubetest.Pod{Name: "fills-" + name, MilliCPU: 1000 + 700*i, Selector: map[string]string{"kubernetes.io/hostname": name}})
			w.bound("fills-"+name, name)
		}
		for i, of := range []map[string]string{nil, annotations("share=30%"), annotations("deadline=soon"), nil, annotations("class=batch"), nil} {
			pod := fmt.Sprint("pod-", i)
			w.AddPod(kubetest.Pod{Name: pod, GPUs: i % 2, MilliCPU: 1900, Annotations: of})
			node, err := w.Bound(w.ctx, pod)
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, node)
		}
		return nodes
	}
	without := placed(func(config map[string]any) { delete(config, "extenders") })
	if with := placed(patient); !slices.Equal(with, without) || len(slices.Compact(slices.Sorted(slices.Values(with)))) < 3 {
		t.Errorf("with the extender %v, without %v", with, without)
	}
}

// TestKubeSchedulerReservesOnce: of pods at once, none gets memory that another was promised, and what a pod's
// container holds counts once.
func TestKubeSchedulerReservesOnce(t *testing.T) {
	w := newWorld(t, asItIs, patient)
	w.node("gpu-1", laxityNode{free: 16})
	pods := []string{"one", "two"}
	for _, pod := range pods {
		w.AddPod(kubetest.Pod{Name: pod, GPUs: 1, Annotations: annotations("gpu-memory=10GiB")})
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	first := make(chan string, len(pods))
	for _, pod := range pods {
		go func() {
			if _, err := w.Bound(ctx, pod); err == nil {
				first <- pod
			}
		}()
	}
	var winner string
	select {
	case winner = <-first:
	case <-w.ctx.Done():
		t.Fatal("neither is bound")
	}
	loser := pods[1-slices.Index(pods, winner)]
	says, err := w.Refused(w.ctx, loser)
	if err != nil || !strings.Contains(says, "free 16GiB − 10GiB reserved") {
		t.Fatalf("%s: %q (%v)", loser, says, err)
	}
	// The winner's container appears and takes what was reserved: the reservation is its own now.
	claimed := make(chan struct{})
	w.fleet.mu.Lock()
	w.fleet.claimed = claimed
	w.fleet.nodes["gpu-1"] = laxityNode{free: 6, pod: winner}
	w.fleet.mu.Unlock()
	select {
	case <-claimed:
	case <-w.ctx.Done():
		t.Fatal("nobody looks for its container")
	}
	r, err := w.places.Explain(w.ctx, placer.Request{})
	if err != nil || r[0].Node.GPUs[0].Reserved != 0 {
		t.Errorf("what it holds is reserved too: %+v (%v)", r[0].Node.GPUs, err)
	}
	w.node("gpu-2", laxityNode{free: 12})
	w.bound(loser, "gpu-2")
}

// TestKubeSchedulerMadeAnew: a pod that is deleted and made anew under its name has the place of the one before, bound
// or not; a pod of that name that asks for nothing leaves nothing reserved.
func TestKubeSchedulerMadeAnew(t *testing.T) {
	w := newWorld(t, asItIs, patient)
	w.node("gpu-1", laxityNode{free: 16})
	reserved := func(want ...uint64) {
		t.Helper()
		var got []uint64
		for _, r := range w.places.Overview(w.ctx).Reservations {
			got = append(got, r.Memory/gib)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("reserved %v GiB, want %v", got, want)
		}
	}
	for _, memory := range []uint64{10, 12} {
		w.AddPod(kubetest.Pod{Name: "one", Annotations: annotations(fmt.Sprintf("gpu-memory=%dGiB", memory))})
		w.bound("one", "gpu-1")
		reserved(memory)
		w.DeletePod("one")
	}
	w.AddPod(kubetest.Pod{Name: "one", Annotations: annotations("gpu-memory=75GiB")})
	if says, err := w.Refused(w.ctx, "one"); err != nil || !strings.Contains(says, "need 75GiB, free 16GiB") {
		t.Fatalf("it says %q (%v)", says, err)
	}
	reserved()
	w.DeletePod("one")
	w.AddPod(kubetest.Pod{Name: "one", Annotations: annotations("gpu-memory=14GiB")})
	w.bound("one", "gpu-1")
	reserved(14)
	w.DeletePod("one")
	w.AddPod(kubetest.Pod{Name: "one"})
	w.bound("one", "gpu-1")
	reserved()
}

// TestKubeSchedulerWithoutUs: an extender that is down, slow or knows nothing stops nobody.
func TestKubeSchedulerWithoutUs(t *testing.T) {
	for name, around := range map[string]func(http.Handler) http.Handler{
		"down": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		},
		"slow": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // or nobody is told that the client is gone
				<-r.Context().Done()
			})
		},
		"without nodes": asItIs,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, around, nil)
			w.node("plain-1", laxityNode{})
			w.node("plain-2", laxityNode{})
			w.AddPod(kubetest.Pod{Name: "fills", MilliCPU: 4000, Selector: map[string]string{"kubernetes.io/hostname": "plain-1"}})
			w.bound("fills", "plain-1")
			for pod, of := range map[string]map[string]string{"foreign": nil, "deadline": annotations("deadline=9s", "gpu-memory=4GiB")} {
				w.AddPod(kubetest.Pod{Name: pod, GPUs: 1, Annotations: of})
				w.bound(pod, "plain-2")
			}
		})
	}
	t.Run("down, and not ignorable", func(t *testing.T) {
		w := newWorld(t, func(http.Handler) http.Handler { return http.NotFoundHandler() }, func(config map[string]any) {
			ours := config["extenders"].([]any)[0].(map[string]any)
			ours["ignorable"], ours["managedResources"] = false, []any{map[string]any{"name": "nvidia.com/gpu"}}
		})
		w.node("plain-1", laxityNode{})
		w.AddPod(kubetest.Pod{Name: "waits", GPUs: 1, Annotations: annotations("deadline=9s")})
		// docs/kubernetes.md warns of what it says: the address that was asked, with the token.
		if says, err := w.Refused(w.ctx, "waits"); err != nil || !strings.Contains(says, "404") || !strings.Contains(says, "laxity:"+secret+"@") {
			t.Errorf("it says %q (%v)", says, err)
		}
		// One that asks for no GPU, as the one that places, does not wait for it.
		w.AddPod(kubetest.Pod{Name: "no-gpu", Annotations: annotations("deadline=9s")})
		w.bound("no-gpu", "plain-1")
	})
}
