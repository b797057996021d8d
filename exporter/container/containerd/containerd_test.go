package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containerd"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/ctrd"
	own "github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	"github.com/laxity/laxity/internal/pod"
	"github.com/laxity/laxity/internal/process/processtest"
)

func open(t *testing.T, o ctrd.Options) *containerd.Engine {
	t.Helper()
	e, err := containerd.New(containerd.Options{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// host drives a real containerd for the conformance suite, as nerdctl does.
type host struct {
	*own.Engine
	client *ctrd.Client
	source container.Source
}

func newHost(t *testing.T, e *own.Engine) host {
	t.Helper()
	c, err := ctrd.New(ctrd.Options{Address: e.Address})
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return host{e, c, open(t, ctrd.Options{Address: e.Address})}
}

func (h host) Source() container.Source { return h.source }

func (h host) Run(t *testing.T, name string, labels map[string]string) string {
	id, err := h.Engine.Run(t.Context(), "", own.Spec{Name: name, Image: containerdtest.Image, Labels: labels})
	check(t, err)
	t.Cleanup(func() { check(t, h.RemoveContainer(containerdtest.Context(t), id)) })
	return id
}
func (h host) Pause(t *testing.T, id string)   { check(t, h.client.Pause(t.Context(), "default", id)) }
func (h host) Unpause(t *testing.T, id string) { check(t, h.client.Resume(t.Context(), "default", id)) }
func (h host) Rename(t *testing.T, id, name string) {
	check(t, h.SetLabels(t.Context(), "default", id, map[string]string{"nerdctl/name": name}))
}
func (h host) Stop(t *testing.T, id string)   { check(t, h.StopContainer(t.Context(), id)) }
func (h host) Remove(t *testing.T, id string) { check(t, h.RemoveContainer(t.Context(), id)) }

// pods drives it as kubelet does: each container is in a pod of its own.
type pods struct {
	host
	sandboxes map[string]string // by container
}

func (p pods) Run(t *testing.T, name string, labels map[string]string) string {
	parts := strings.Split(name, "/")
	sandbox, id, err := p.RunPod(t.Context(), own.Pod{Namespace: parts[0], Name: parts[1], Annotations: annotations(labels), Labels: plain(labels)},
		own.Spec{Name: parts[2], Image: containerdtest.Image})
	t.Cleanup(func() { check(t, p.RemovePod(containerdtest.Context(t), sandbox)) })
	check(t, err)
	p.sandboxes[id] = sandbox
	return id
}
func (p pods) Pause(t *testing.T, id string) {
	check(t, p.client.Pause(t.Context(), ctrd.CRINamespace, id))
}
func (p pods) Unpause(t *testing.T, id string) {
	check(t, p.client.Resume(t.Context(), ctrd.CRINamespace, id))
}

// Rename does what nobody does to a container of a pod.
func (p pods) Rename(t *testing.T, id, name string) {
	check(t, p.SetLabels(t.Context(), ctrd.CRINamespace, id, map[string]string{"io.kubernetes.container.name": name[strings.LastIndex(name, "/")+1:]}))
}
func (p pods) Stop(t *testing.T, id string)   { check(t, p.StopInPod(t.Context(), id, 0)) }
func (p pods) Remove(t *testing.T, id string) { check(t, p.RemoveInPod(t.Context(), id)) }

// annotations and plain divide labels into what a person writes on a pod: laxity.deadline as an
// annotation laxity.dev/deadline, the others as labels.
func annotations(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if name, ok := strings.CutPrefix(key, task.LabelPrefix); ok {
			out[pod.Annotation+name] = value
		}
	}
	return out
}

func plain(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if !strings.HasPrefix(key, task.LabelPrefix) {
			out[key] = value
		}
	}
	return out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	h := newHost(t, containerdtest.New(t))
	t.Run("containers", func(t *testing.T) { containertest.Conformance(t, "laxity-test-", h) })
	t.Run("pods", func(t *testing.T) {
		containertest.Conformance(t, "ns/pod/laxity-test-", pods{h, map[string]string{}})
	})
}

func list(t *testing.T, e container.Source) map[string]container.Container {
	t.Helper()
	all, err := e.List(t.Context())
	check(t, err)
	out := map[string]container.Container{}
	for _, c := range all {
		out[c.ID] = c
	}
	return out
}

// What a person wrote on a pod is what Docker's labels are on a container.
func TestPods(t *testing.T) {
	e := containerdtest.New(t)
	source := open(t, ctrd.Options{Address: e.Address})
	t.Cleanup(func() { // as kubelet does
		for _, parent := range []string{"kubepods/besteffort/pod0b5c", "kubepods/besteffort", "kubepods"} {
			groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + parent)
			for _, dir := range append(groups, filepath.Join("/sys/fs/cgroup", parent)) {
				_ = os.Remove(dir) // another's is not empty
			}
		}
	})
	sandbox, id, err := e.RunPod(t.Context(), own.Pod{
		Namespace: "team", Name: "train-0",
		Annotations: map[string]string{"laxity.dev/deadline": "9s", "laxity.dev/share": "30%", "kubernetes.io/other": "x"},
		Labels:      map[string]string{"app": "train", "laxity.class": "batch"},
		// As kubelet names it where control groups are not systemd's.
		CgroupParent: "/kubepods/besteffort/pod0b5c",
	}, own.Spec{Name: "main", Image: containerdtest.Image, Labels: map[string]string{"laxity.deadline": "1s"}, Env: []string{"NVIDIA_VISIBLE_DEVICES=GPU-1"}})
	check(t, err)
	all := list(t, source)
	c, ok := all[id]
	if !ok || len(all) != 1 {
		t.Fatalf("listed %+v, want the pod's container alone, not its sandbox %s", all, sandbox)
	}
	if c.Name != "team/train-0/main" || c.Image != containerdtest.Image || c.Command != "/sleep" || len(c.GPUs) != 1 || c.GPUs[0] != "GPU-1" {
		t.Errorf("listed as %+v", c)
	}
	spec, invalid := c.Spec(task.Limits{})
	if spec.Deadline != 9 || spec.Share != 0.3 || spec.Class != task.ClassBatch || len(invalid) > 0 || c.Labels["app"] != "train" {
		t.Errorf("spec %+v, invalid %v, labels %v", spec, invalid, c.Labels)
	}
	got, ok, err := container.Proc("/proc").OfPID(c.PID)
	if err != nil || !ok || got != id {
		t.Errorf("its process is of %q, %v, %v; want %q", got, ok, err, id)
	}
	check(t, e.RemovePod(t.Context(), sandbox))
	if all := list(t, source); len(all) > 0 {
		t.Errorf("listed after its end: %+v", all)
	}
}

// A container that is over before it is described is told of all the same.
func TestStartOfAShortContainer(t *testing.T) {
	e := containerdtest.New(t)
	events, err := open(t, ctrd.Options{Address: e.Address}).Watch(t.Context())
	check(t, err)
	id, err := e.Run(t.Context(), "", own.Spec{Name: "short", Image: containerdtest.Image, Command: []string{"/sleep", "not"}, Labels: map[string]string{"laxity.deadline": "1s"}})
	check(t, err)
	var kinds []container.EventKind
	for e := range events {
		if e.ID != id {
			continue
		}
		kinds = append(kinds, e.Kind)
		if e.Kind == container.Started && e.Container.Labels["laxity.deadline"] != "1s" {
			t.Errorf("started as %+v", e.Container)
		}
		if e.Kind == container.Died {
			break
		}
	}
	if want := []container.EventKind{container.Started, container.Died}; fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}

// Who names namespaces sees those alone; what cannot be watched is left out.
func TestNamespaces(t *testing.T) {
	e := containerdtest.New(t)
	id, err := e.Run(t.Context(), "", own.Spec{Name: "plain", Image: containerdtest.Image})
	check(t, err)
	_, err = e.Run(t.Context(), "typed-by-a-person-"+own.RandomID()[:8], own.Spec{Name: "strange", Image: containerdtest.Image})
	check(t, err)
	_, inPod, err := e.RunPod(t.Context(), own.Pod{Namespace: "ns", Name: "pod"}, own.Spec{Name: "c", Image: containerdtest.Image})
	check(t, err)
	for _, tt := range []struct {
		only []string
		want []string
	}{
		{nil, []string{id, inPod}},
		{[]string{"default"}, []string{id}},
		{[]string{ctrd.CRINamespace}, []string{inPod}},
		{[]string{"none"}, nil},
	} {
		all := list(t, open(t, ctrd.Options{Address: e.Address, Namespaces: tt.only}))
		if len(all) != len(tt.want) {
			t.Errorf("%v: %+v", tt.only, all)
		}
		for _, id := range tt.want {
			if _, ok := all[id]; !ok {
				t.Errorf("%v: %s is missing", tt.only, id)
			}
		}
	}
}

// containerd restarts: the stream ends, and the next one tells what comes. What was paused before
// is so after it.
func TestRestart(t *testing.T) {
	e := containerdtest.New(t)
	h := newHost(t, e)
	id := h.Run(t, "lives-on", nil)
	h.Pause(t, id)
	events, err := h.source.Watch(t.Context())
	check(t, err)
	check(t, e.Kill())
	for range events { // until it is closed
	}
	if _, err := h.source.List(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("List without containerd: %v", err)
	}
	if _, err := h.source.Watch(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("Watch without containerd: %v", err)
	}
	check(t, e.Start(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for events, err = h.source.Watch(ctx); err != nil; events, err = h.source.Watch(ctx) {
		if !errors.Is(err, container.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if c := list(t, h.source)[id]; !c.Paused || c.PID == 0 {
		t.Errorf("after the restart: %+v", c)
	}
	h.Unpause(t, id)
	for e := range events {
		if e.ID == id && e.Kind == container.Unpaused {
			return
		}
	}
	t.Error("its unpause was not told")
}

// A shim hangs: its container is listed, as far as containerd's record goes, and hides no other.
func TestHungShim(t *testing.T) {
	e := containerdtest.New(t)
	h := newHost(t, e)
	hung, other := h.Run(t, "hung", nil), h.Run(t, "other", nil)
	shim := parent(t, list(t, h.source)[hung].PID)
	t.Cleanup(func() { check(t, syscall.Kill(shim, syscall.SIGCONT)) })
	processtest.Stop(t, shim)
	all := list(t, h.source)
	if c := all[hung]; c.ID != hung || !c.Partial {
		t.Errorf("the container whose shim hangs: %+v", c)
	}
	if c := all[other]; c.PID == 0 || c.Partial {
		t.Errorf("the other one: %+v", c)
	}
}

// parent returns the parent of a process.
func parent(t *testing.T, pid int) (ppid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	_, rest, _ := strings.Cut(string(status), "\nPPid:")
	if _, err := fmt.Sscan(rest, &ppid); err != nil || ppid < 2 {
		t.Fatalf("parent %d of process %d: %v", ppid, pid, err)
	}
	return ppid
}

// As BenchmarkList of Docker's.
func BenchmarkList(b *testing.B) {
	e := containerdtest.New(b)
	source, err := containerd.New(containerd.Options{Options: ctrd.Options{Address: e.Address}})
	if err != nil {
		b.Fatal(err)
	}
	const containers = 5
	for i := range containers {
		if _, _, err := e.RunPod(b.Context(), own.Pod{Namespace: "ns", Name: fmt.Sprint("pod-", i)}, own.Spec{Name: "c", Image: containerdtest.Image}); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	for b.Loop() {
		if _, err := source.List(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(b.N)/containers, "µs/container")
}

func TestNoContainerd(t *testing.T) {
	e := open(t, ctrd.Options{Address: filepath.Join(t.TempDir(), "none.sock")})
	if _, err := e.List(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	if _, err := e.Watch(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("Watch: %v", err)
	}
}
