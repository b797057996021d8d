package crio_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/container/crio"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cri"
	"github.com/laxity/laxity/internal/cri/critest"
	own "github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	"github.com/laxity/laxity/internal/freezer"
	"github.com/laxity/laxity/internal/pod"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// looker is an Engine that looks when the test says so, and where the engine tells of something.
type looker struct {
	*crio.Engine

	mu       sync.Mutex
	ticks    chan time.Time // of the watch that is made now
	watchers []watcher
}

type watcher struct {
	ticks chan time.Time
	ended chan struct{} // closed where the watch ended
}

func open(t testing.TB, address, proc string) *looker {
	t.Helper()
	l := &looker{}
	var err error
	l.Engine, err = crio.New(crio.Options{Address: address, Proc: proc, Ticks: func() <-chan time.Time { return l.ticks }})
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Watch remembers that it watches.
func (l *looker) Watch(ctx context.Context) (<-chan container.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ticks = make(chan time.Time) // of its own: one watch must not take another's ticks
	events, err := l.Engine.Watch(ctx)
	if err != nil {
		return nil, err
	}
	out, ended := make(chan container.Event, 100), make(chan struct{})
	l.watchers = append(l.watchers, watcher{l.ticks, ended})
	go func() {
		defer close(out)
		defer close(ended)
		for e := range events {
			out <- e
		}
	}()
	return out, nil
}

// look returns once all of what happened before is told by each watch: a look that begins after a
// tick was taken has ended when the next one is.
func (l *looker) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.watchers {
		for range 2 {
			select {
			case w.ticks <- time.Now():
			case <-w.ended:
			}
		}
	}
}

// recorded is a Host of the recorded server.
type recorded struct {
	*critest.Server
	source *looker
}

func newRecorded(t testing.TB) recorded {
	t.Helper()
	s := critest.New(t)
	return recorded{s, open(t, s.Address, s.Proc)}
}

func (h recorded) Source() container.Source { return h.source }
func (h recorded) Run(_ *testing.T, name string, labels map[string]string) string {
	defer h.source.look()
	return h.Server.Run(podOf(name, labels))
}

// podOf divides labels into what a person writes on a pod: laxity.deadline as an annotation
// laxity.dev/deadline, the others as labels.
func podOf(name string, labels map[string]string) critest.Pod {
	parts := strings.Split(name, "/")
	p := critest.Pod{Namespace: parts[0], Name: parts[1], Container: parts[2], Labels: map[string]string{}, Annotations: map[string]string{}}
	for key, value := range labels {
		if name, ok := strings.CutPrefix(key, task.LabelPrefix); ok {
			p.Annotations[pod.Annotation+name] = value
		} else {
			p.Labels[key] = value
		}
	}
	return p
}
func (h recorded) Pause(_ *testing.T, id string)   { h.SetFrozen(id, true); h.source.look() }
func (h recorded) Unpause(_ *testing.T, id string) { h.SetFrozen(id, false); h.source.look() }
func (h recorded) Stop(_ *testing.T, id string)    { h.Server.Stop(id); h.source.look() }
func (h recorded) Remove(_ *testing.T, id string)  { h.Server.Remove(id); h.source.look() }

// real is a Host of containerd's CRI service, which tells of no events before version 1.7.
type real struct {
	*own.Engine
	client *cri.Client
	source *looker
}

func newReal(t testing.TB) real {
	t.Helper()
	e := containerdtest.New(t)
	c, err := cri.New(e.Address)
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return real{e, c, open(t, e.Address, "/proc")}
}

func (h real) Source() container.Source { return h.source }
func (h real) Run(t *testing.T, name string, labels map[string]string) string {
	defer h.source.look()
	p := podOf(name, labels)
	sandbox, id, err := h.RunPod(t.Context(), own.Pod{Namespace: p.Namespace, Name: p.Name, Annotations: p.Annotations, Labels: p.Labels},
		own.Spec{Name: p.Container, Image: containerdtest.Image})
	t.Cleanup(func() { check(t, h.RemovePod(containerdtest.Context(t), sandbox)) })
	check(t, err)
	return id
}
func (h real) Pause(t *testing.T, id string)   { h.set(t, id, true) }
func (h real) Unpause(t *testing.T, id string) { h.set(t, id, false) }
func (h real) set(t *testing.T, id string, frozen bool) {
	t.Helper()
	kernel := freezer.Kernel{Proc: "/proc"}
	c, err := h.client.Describe(t.Context(), id, nil)
	check(t, err)
	g, err := kernel.Of(id, c.PID)
	check(t, err)
	check(t, g.Set(frozen))
	looks := 0
	for is, err := g.Frozen(); is != frozen; is, err = g.Frozen() { // the kernel takes a moment
		check(t, err)
		if looks++; looks%10000 == 0 { // version 1 never ends to freeze who was in the middle of an exec: as runc, begin anew
			check(t, g.Set(!frozen))
			check(t, g.Set(frozen))
		}
	}
	h.source.look()
}
func (h real) Stop(t *testing.T, id string) {
	check(t, h.StopInPod(t.Context(), id, 0))
	h.source.look()
}
func (h real) Remove(t *testing.T, id string) {
	check(t, h.RemoveInPod(t.Context(), id))
	h.source.look()
}

func TestConformance(t *testing.T) {
	t.Run("recorded", func(t *testing.T) { containertest.Conformance(t, "ns/pod/laxity-test-", newRecorded(t)) })
	t.Run("recorded, without events", func(t *testing.T) {
		h := newRecorded(t)
		h.Silence()
		containertest.Conformance(t, "ns/pod/laxity-test-", h)
	})
	t.Run("recorded, in a namespace", func(t *testing.T) {
		h := newRecorded(t)
		h.InNamespace()
		containertest.Conformance(t, "ns/pod/laxity-test-", h)
	})
	t.Run("containerd", func(t *testing.T) { containertest.Conformance(t, "ns/pod/laxity-test-", newReal(t)) })
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

// What a person wrote on a pod is what Docker's labels are on a container, and the processes are
// told by their control groups.
func TestPod(t *testing.T) {
	labels := map[string]string{"app": "train", "laxity.deadline": "9s", "laxity.share": "30%", "laxity.class": "batch"}
	expect := func(t *testing.T, source container.Source, proc container.Proc, id string) {
		all := list(t, source)
		c, ok := all[id]
		if !ok || len(all) != 1 {
			t.Fatalf("listed %+v, want the pod's container alone", all)
		}
		if c.Name != "team/train-0/main" || c.Image != containerdtest.Image || c.Command != "/sleep" || !slices.Equal(c.GPUs, []string{"GPU-1"}) {
			t.Errorf("listed as %+v", c)
		}
		spec, invalid := c.Spec(task.Limits{})
		if spec.Deadline != 9 || spec.Share != 0.3 || spec.Class != task.ClassBatch || len(invalid) > 0 || c.Labels["app"] != "train" {
			t.Errorf("spec %+v, invalid %v, labels %v", spec, invalid, c.Labels)
		}
		if got, ok, err := proc.OfPID(c.PID); err != nil || !ok || got != id {
			t.Errorf("its process is of %q, %v, %v; want %q", got, ok, err, id)
		}
	}
	p := podOf("team/train-0/main", labels)
	p.Env = []string{"NVIDIA_VISIBLE_DEVICES=GPU-1"}
	t.Run("recorded", func(t *testing.T) {
		h := newRecorded(t)
		expect(t, h.source, container.Proc(h.Proc), h.Server.Run(p))
	})
	t.Run("containerd", func(t *testing.T) {
		h := newReal(t)
		_, id, err := h.RunPod(t.Context(), own.Pod{Namespace: "team", Name: "train-0", Annotations: p.Annotations, Labels: p.Labels, CgroupParent: "/kubepods/besteffort/pod0b5c"},
			own.Spec{Name: "main", Image: containerdtest.Image, Env: p.Env})
		check(t, err)
		expect(t, h.source, "/proc", id)
	})
}

// next returns the next event, or fails when the stream ends.
func next(t *testing.T, events <-chan container.Event) container.Event {
	t.Helper()
	e, ok := <-events
	if !ok {
		t.Fatal("the stream ended")
	}
	return e
}

// Nobody looks: the engine's own events tell of starts and ends. A stream that breaks is opened
// again.
func TestEvents(t *testing.T) {
	h := newRecorded(t)
	opened := h.Opened()
	events, err := h.source.Engine.Watch(t.Context())
	check(t, err)
	for range 2 {
		<-opened
		id := h.Server.Run(podOf("ns/pod/a", nil))
		if e := next(t, events); e.Kind != container.Started || e.ID != id || e.Container.Name != "ns/pod/a" || e.Container.PID == 0 {
			t.Errorf("%+v", e)
		}
		h.Server.Stop(id)
		if e := next(t, events); e.Kind != container.Died || e.ID != id {
			t.Errorf("%+v", e)
		}
		h.Server.Remove(id)
		if e := next(t, events); e.Kind != container.Removed || e.ID != id {
			t.Errorf("%+v", e)
		}
		opened = h.Opened()
		h.Break()
	}
}

// A container that is over before anybody looks is told of all the same, with its labels.
func TestStartOfAShortContainer(t *testing.T) {
	h := newRecorded(t)
	h.Silence()
	events, err := h.source.Watch(t.Context())
	check(t, err)
	id := h.Server.Run(podOf("ns/pod/short", map[string]string{"laxity.deadline": "1s"}))
	h.Server.Stop(id)
	h.source.look()
	if e := next(t, events); e.Kind != container.Started || e.Container.Labels["laxity.deadline"] != "1s" || e.Container.PID != 0 {
		t.Errorf("%+v", e)
	}
	if e := next(t, events); e.Kind != container.Died {
		t.Errorf("%+v", e)
	}
}

// The engine restarts: the watch ends, and the next one tells what comes. What was paused before is
// so after it.
func TestRestart(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (h containertest.Host, down, up func()){
		"recorded": func(t *testing.T) (containertest.Host, func(), func()) {
			h := newRecorded(t)
			return h, h.Down, h.Up
		},
		"containerd": func(t *testing.T) (containertest.Host, func(), func()) {
			h := newReal(t)
			return h, func() { check(t, h.Kill()) }, func() { check(t, h.Start(t.Context())) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, down, up := start(t)
			source := h.Source().(*looker)
			id := h.Run(t, "ns/pod/lives-on", nil)
			h.Pause(t, id)
			events, err := source.Watch(t.Context())
			check(t, err)
			down()
			source.look()
			for range events { // until it is closed
			}
			if _, err := source.List(t.Context()); !errors.Is(err, container.ErrUnavailable) {
				t.Errorf("List without the engine: %v", err)
			}
			if _, err := source.Watch(t.Context()); !errors.Is(err, container.ErrUnavailable) {
				t.Errorf("Watch without the engine: %v", err)
			}
			up()
			for events, err = source.Watch(t.Context()); err != nil; events, err = source.Watch(t.Context()) {
				if !errors.Is(err, container.ErrUnavailable) {
					t.Fatal(err)
				}
			}
			if c := list(t, source)[id]; !c.Paused || c.PID == 0 {
				t.Errorf("after the restart: %+v", c)
			}
			h.Unpause(t, id)
			if e := next(t, events); e.ID != id || e.Kind != container.Unpaused {
				t.Errorf("%+v", e)
			}
		})
	}
}

// A part of the containers does not pass for all: what goes between the calls is left out, what the
// engine does not describe stays in, and where the engine fails, so does the list.
func TestFaults(t *testing.T) {
	h := newRecorded(t)
	stays := h.Server.Run(podOf("ns/pod/stays", map[string]string{"laxity.class": "batch"}))
	goes := h.Server.Run(podOf("ns/pod/goes", nil))
	h.Vanish(goes)
	if all := list(t, h.source); len(all) != 1 || all[stays].PID == 0 {
		t.Errorf("one vanished: %+v", all)
	}
	events, err := h.source.Watch(t.Context())
	check(t, err)
	odd := h.Server.Run(podOf("ns/pod/odd", map[string]string{"laxity.class": "batch"}))
	h.FailWith(func(method, id string) error {
		if method == "ContainerStatus" && id == odd {
			return status.Error(codes.Internal, "its metadata cannot be read")
		}
		return nil
	})
	h.source.look()
	if e := next(t, events); e.Kind != container.Started || e.Container.Name != "ns/pod/odd" || e.Container.Labels["laxity.class"] != "batch" {
		t.Errorf("%+v", e)
	}
	for _, code := range []codes.Code{codes.Internal, codes.DeadlineExceeded} {
		h.FailWith(func(method, id string) error {
			if method == "ContainerStatus" && id == odd {
				return status.Error(code, "its metadata cannot be read")
			}
			return nil
		})
		if c, ok := list(t, h.source)[odd]; !ok || c.Name != "ns/pod/odd" || c.PID != 0 || !c.Partial {
			t.Errorf("not described (%v): listed %v, as %+v", code, ok, c)
		}
	}
	h.FailWith(nil)
	if c := list(t, h.source)[odd]; c.PID == 0 || c.Partial {
		t.Errorf("described again: %+v", c)
	}
	another := h.Server.Run(podOf("ns/pod/another", nil))
	for method, code := range map[string]codes.Code{"ListContainers": codes.Internal, "ListPodSandbox": codes.Internal, "ContainerStatus": codes.Unavailable} {
		h.FailWith(func(m, _ string) error {
			if m == method {
				return status.Error(code, "no")
			}
			return nil
		})
		all, err := h.source.List(t.Context())
		if err == nil || errors.Is(err, container.ErrUnavailable) != (code == codes.Unavailable) {
			t.Errorf("%s fails: %v, %v", method, all, err)
		}
	}
	h.FailWith(nil)
	if _, ok := list(t, h.source)[another]; !ok {
		t.Error("not listed after the faults")
	}
}

// clock is a clock that the test sets.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// hanging is a recorded server that asks status first, and may wait there.
type hanging struct {
	*critest.Server
	status func(id string) error
}

func (h hanging) ContainerStatus(ctx context.Context, r *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	if err := h.status(r.GetContainerId()); err != nil {
		return nil, err
	}
	return h.Server.ContainerStatus(ctx, r)
}

// serve serves it at an address of its own.
func (h hanging) serve(t *testing.T) (address string) {
	t.Helper()
	address = h.Address + ".2"
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", address)
	check(t, err)
	server, ended := grpc.NewServer(), make(chan error, 1)
	api.RegisterRuntimeServiceServer(server, h)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); check(t, <-ended) })
	return address
}

// Containers that hang in the engine delay the others once a minute, and together no longer than one
// does.
func TestContainersThatHang(t *testing.T) {
	const hang = 3
	s, c := critest.New(t), &clock{}
	s.Run(podOf("ns/pod/fine", nil))
	odd := map[string]bool{}
	for i := range hang {
		odd[s.Run(podOf(fmt.Sprint("ns/pod/odd-", i), nil))] = true
	}
	var asked atomic.Int64
	together := make(chan struct{}) // closed once the engine was asked about all of them
	address := hanging{s, func(id string) error {
		n := int64(0)
		if odd[id] {
			n = asked.Add(1)
		}
		if n == 0 || n > hang { // the last questions are answered
			return nil
		}
		if n == hang {
			c.advance(container.DescribeTimeout)
			close(together)
		}
		<-together
		return status.Error(codes.DeadlineExceeded, "no answer")
	}}.serve(t)
	engine, err := crio.New(crio.Options{Address: address, Proc: s.Proc, Now: c.now})
	check(t, err)
	t.Cleanup(func() { _ = engine.Close() })
	look := func(partial, questions int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		all, err := engine.List(ctx)
		check(t, err)
		got := 0
		for _, c := range all {
			if c.Partial != (c.PID == 0) || c.Partial && !odd[c.ID] {
				t.Errorf("%+v", c)
			}
			if c.Partial {
				got++
			}
		}
		if len(all) != hang+1 || got != partial || asked.Load() != int64(questions) {
			t.Errorf("%d listed, %d of them partly, after %d questions; want %d, %d, %d", len(all), got, asked.Load(), hang+1, partial, questions)
		}
	}
	look(hang, hang)
	look(hang, hang) // they are not asked about again
	c.advance(time.Minute - time.Nanosecond)
	look(hang, hang)
	c.advance(time.Nanosecond)
	look(0, 2*hang)
}

// CRI-O before 1.25 calls a container unknown that its runtime calls paused. It runs as long as its
// first process does.
func TestUnknownState(t *testing.T) {
	h := newRecorded(t)
	id := h.Server.Run(podOf("ns/pod/c", nil))
	h.SetFrozen(id, true)
	h.SetState(id, api.ContainerState_CONTAINER_UNKNOWN)
	if c, ok := list(t, h.source)[id]; !ok || !c.Paused || c.PID == 0 {
		t.Errorf("listed %v, as %+v", ok, c)
	}
	h.Server.Stop(id)
	h.SetState(id, api.ContainerState_CONTAINER_UNKNOWN)
	if all := list(t, h.source); len(all) > 0 {
		t.Errorf("after its end: %+v", all)
	}
	other := h.Server.Run(podOf("ns/pod/d", nil))
	h.SetState(other, api.ContainerState_CONTAINER_CREATED)
	if all := list(t, h.source); len(all) > 0 {
		t.Errorf("before its start: %+v", all)
	}
}

func TestNoEngine(t *testing.T) {
	e := open(t, t.TempDir()+"/none.sock", "/proc")
	if _, err := e.List(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	if _, err := e.Watch(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("Watch: %v", err)
	}
	if _, err := crio.New(crio.Options{}); err == nil {
		t.Error("no address, and no error")
	}
}

// As BenchmarkList of containerd's.
func BenchmarkList(b *testing.B) {
	h := newReal(b)
	const containers = 5
	for i := range containers {
		if _, _, err := h.RunPod(b.Context(), own.Pod{Namespace: "ns", Name: fmt.Sprint("pod-", i)}, own.Spec{Name: "c", Image: containerdtest.Image}); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	for b.Loop() {
		if _, err := h.source.List(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(b.N)/containers, "µs/container")
}
