package exporter_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/device/sim/tenant"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	"github.com/laxity/laxity/internal/engine"
)

var podTasks = flag.Int("pods.tasks", 40, "how many tasks TestTasksOfPods runs, each in a pod of its own")

const workloadImage = "laxity.test/matmul:1"

// podWorld is a containerd of the test's own, whose pods compute on a simulated GPU.
type podWorld struct {
	*containerd.Engine
	gpu   *simtest.Server
	binds map[string]string
}

func newPodWorld(t *testing.T, card sim.Options) podWorld {
	t.Helper()
	w := podWorld{containerdtest.New(t), simtest.Start(t, card), map[string]string{}}
	root, err := tenant.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(root)
	if err == nil {
		err = w.ImportLayer(t.Context(), workloadImage, layer, []string{"/matmul"})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range tenant.Mounts(w.gpu.Socket, simtest.Library(t)) {
		w.binds[m.Source] = m.Target
	}
	return w
}

// run runs the workload in a pod, to its end, and returns the container's id. One that rests computes
// once e shows its container. The pod is removed once e shows the task under the pod's name.
func (w podWorld) run(ctx context.Context, e *running, p containerd.Pod, rests bool, args ...string) (string, error) {
	env := tenant.Env(w.gpu.Socket)
	var begin func() error
	if rests {
		variable, remove, err := w.gpu.Rest(p.Namespace + "." + p.Name)
		if err != nil {
			return "", err
		}
		env, begin = append(env, variable), remove
	}
	spec := containerd.Spec{Name: "main", Image: workloadImage, Command: args, Env: env, Binds: w.binds}
	sandbox, id, err := w.RunPod(ctx, p, spec)
	if err != nil {
		return "", err
	}
	if rests {
		if e.first(func(s *task.Snapshot) bool { _, shown := s.FindContainer(id); return shown }) == nil {
			return "", fmt.Errorf("the container of %s is not shown", p.Name)
		}
		if err := begin(); err != nil {
			return "", err
		}
	}
	for {
		s, err := w.Pods.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return "", err
		}
		if s.GetStatus().GetState() == cri.ContainerState_CONTAINER_EXITED {
			if code := s.GetStatus().GetExitCode(); code != 0 {
				return "", fmt.Errorf("%s ended with %d", p.Name, code)
			}
			name := task.PodContainer(p.Namespace, p.Name, "main")
			e.first(func(s *task.Snapshot) bool { // the caller finds what never is shown
				return slices.ContainsFunc(s.Ended, func(k task.Task) bool { return k.ContainerID == id && k.Container == name })
			})
			return id, w.RemovePod(ctx, sandbox)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Each task is told of once, under its own pod, with its own pod's deadline. All containers have
// the same name. The containers are seen by containerd's own interface, and by Kubernetes', as those
// of CRI-O are.
func TestTasksOfPods(t *testing.T) {
	w := newPodWorld(t, sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512)}}})
	for _, choice := range []engine.Choice{{Kind: engine.Containerd, Address: w.Address}, {Kind: engine.CRIO, CRIOAddress: w.Address}} {
		t.Run(choice.Kind, func(t *testing.T) { tasksOfPods(t, w, choice) })
	}
}

func tasksOfPods(t *testing.T, w podWorld, choice engine.Choice) {
	e := startWith(t, exporter.Options{Node: "test", Device: "sim:" + w.gpu.Socket, MaxEnded: 2*(*podTasks) + 10, Engine: choice})
	<-e.Ready()
	first := e.sensed(func(n int) string {
		id, err := w.run(t.Context(), e, containerd.Pod{Namespace: "first", Name: fmt.Sprintf("train-%d", n)}, true, "--n", "64")
		if err != nil {
			t.Fatal(err)
		}
		return id
	})
	count := *podTasks
	if testing.Short() {
		count = 8
	}
	pods, ids, errs := make([]containerd.Pod, count), make([]string, count), make([]error, count)
	slots := make(chan struct{}, map[string]int{engine.Containerd: 4, engine.CRIO: 8}[choice.Kind])
	var all sync.WaitGroup
	for i := range count {
		pods[i] = containerd.Pod{Namespace: fmt.Sprintf("team-%d", i%3), Name: fmt.Sprintf("train-%d", i/3),
			Annotations: map[string]string{"laxity.dev/deadline": fmt.Sprintf("%ds", 100+i)}}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			// containerd 1.6 tells of no events by the CRI, and the engine is looked at every second.
			rests := choice.Kind == engine.CRIO
			ids[i], errs[i] = w.run(t.Context(), e, pods[i], rests, "--n", "64", "--kernels", fmt.Sprint(1+i%7))
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := e.await("all tasks", func(s *task.Snapshot) bool { return len(s.Ended) >= first+count && len(s.Tasks) == 0 })
	byPod := map[string][]task.Task{}
	for _, ended := range s.Ended {
		byPod[ended.Container] = append(byPod[ended.Container], ended)
	}
	missed, wrong := 0, 0
	for i, p := range pods {
		name := task.PodContainer(p.Namespace, p.Name, "main")
		switch of := byPod[name]; {
		case len(of) == 0:
			missed++
		case len(of) > 1 || of[0].ContainerID != ids[i] || of[0].State != task.Ended || !of[0].Deadline.Equal(of[0].Start.Time.Add(time.Duration(100+i)*time.Second)):
			wrong++
			t.Errorf("%s (%s): %+v", name, ids[i], of)
		}
	}
	t.Logf("%d tasks in pods: %d missed, %d of a wrong pod; %d ended in all", count, missed, wrong, len(s.Ended)-first)
	if missed > 0 || wrong > 0 || len(s.Ended) != first+count {
		t.Error("attribution is not exact")
	}
	metrics, err := e.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range metrics {
		if f.GetName() != "gpu_tasks_started_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if m.GetCounter().GetValue() == 1 && strings.HasPrefix(labels["container"], labels["namespace"]+"/"+labels["pod"]+"/") && labels["pod"] != "" {
				series++
			}
		}
	}
	if series != first+count {
		t.Errorf("%d series of tasks in pods, want %d", series, first+count)
	}
}

// A person changes the deadline of a pod's container by its name, which has slashes.
func TestChangeOfAPodsContainer(t *testing.T) {
	a := serve(t, nil)
	if w := a.call("PATCH", "/api/v1/containers/team%2Ftrain-0%2Fmain", `{"deadline":"5s"}`); w.Code != 404 || !strings.Contains(w.Body.String(), "team/train-0/main") {
		t.Errorf("%d %s, want that there is no container team/train-0/main", w.Code, w.Body)
	}
}
