package containerd_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/containerd"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/ctrd"
	own "github.com/laxity/laxity/internal/daemon/containerd"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	"github.com/laxity/laxity/internal/freezer"
)

// rig is a real containerd with an enforcer on it.
type rig struct {
	*own.Engine
	client    *ctrd.Client
	namespace string // of what run starts
}

func newRig(t testing.TB, e *own.Engine, namespace string) rig {
	t.Helper()
	c, err := ctrd.New(ctrd.Options{Address: e.Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return rig{e, c, namespace}
}

func (r rig) enforcer(t testing.TB) (*containerd.Enforcer, *journal.Journal) {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e, err := containerd.New(containerd.Options{Client: r.client, Journal: j, CallTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return e, j
}

func (r rig) run(t testing.TB) string {
	t.Helper()
	spec := own.Spec{Name: "c", Image: containerdtest.Image, Labels: map[string]string{"laxity.pause": "allow"}}
	var id string
	var err error
	if r.namespace == ctrd.CRINamespace {
		_, id, err = r.RunPod(t.Context(), own.Pod{Namespace: "ns", Name: fmt.Sprintf("pod-%d", time.Now().UnixNano()), Annotations: map[string]string{"laxity.dev/deadline": "9s"}}, spec)
	} else {
		id, err = r.Run(t.Context(), "", spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (r rig) pid(t testing.TB, id string) int {
	t.Helper()
	task, err := r.client.Task(t.Context(), r.namespace, id)
	if err != nil {
		t.Fatal(err)
	}
	return task.PID
}

func (r rig) setPaused(t *testing.T, id string, paused bool) {
	t.Helper()
	do := r.client.Resume
	if paused {
		do = r.client.Pause
	}
	if err := do(t.Context(), r.namespace, id); err != nil {
		t.Fatal(err)
	}
}

func (r rig) stopped(t *testing.T, id string) bool {
	t.Helper()
	frozen, err := freezer.Kernel{Proc: "/proc"}.Frozen(r.pid(t, id))
	if err != nil {
		t.Fatalf("read the freezer: %v", err)
	}
	return frozen
}

func (r rig) remove(t *testing.T, id string) {
	t.Helper()
	err := r.RemoveContainer(t.Context(), id)
	if r.namespace == ctrd.CRINamespace {
		_ = r.client.Resume(t.Context(), r.namespace, id) // what is frozen may not be stopped
		err = errors.Join(r.StopInPod(t.Context(), id, 0), r.RemoveInPod(t.Context(), id))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	e := containerdtest.New(t)
	for name, namespace := range map[string]string{"containers": "default", "pods": ctrd.CRINamespace} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, e, namespace)
			enforcetest.Run(t, func(t *testing.T) enforcetest.Subject {
				e, j := r.enforcer(t)
				return enforcetest.Subject{
					Enforcer: e, Journal: j, Run: func(t *testing.T) string { return r.run(t) },
					Remove: r.remove, SetPaused: r.setPaused, Stopped: r.stopped,
				}
			})
		})
	}
}

// The labels by which --containers.label chooses are those that the exporter reads.
func TestLabelsOfAPod(t *testing.T) {
	r := newRig(t, containerdtest.New(t), ctrd.CRINamespace)
	e, _ := r.enforcer(t)
	began := time.Now()
	s, err := e.Status(t.Context(), r.run(t))
	if err != nil || s.Labels["laxity.deadline"] != "9s" || s.Labels["laxity.pause"] != "allow" || s.Labels["io.kubernetes.pod.namespace"] != "ns" {
		t.Errorf("status %+v, %v", s, err)
	}
	if d := s.Started.Sub(began); d < -time.Second || d > time.Minute {
		t.Errorf("started %v after the test", d)
	}
	if name, err := e.Engine(t.Context()); err != nil || len(name) < len("containerd-")+8 {
		t.Errorf("engine %q, %v", name, err)
	}
}

// containerd is away when a container is to be released, and comes back: the shim has kept that it
// is paused, and the record is there until it runs.
func TestRestart(t *testing.T) {
	r := newRig(t, containerdtest.New(t), "default")
	e, j := r.enforcer(t)
	id := r.run(t)
	if err := e.Pause(t.Context(), enforcetest.HoldOf(id)); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := e.Unpause(t.Context(), id); !errors.Is(err, enforce.ErrUnavailable) {
		t.Errorf("unpause without containerd: %v", err)
	}
	if _, recorded, _ := j.Get(id); !recorded {
		t.Error("off the record while it is stopped")
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for err := e.Unpause(t.Context(), id); err != nil; err = e.Unpause(t.Context(), id) {
		if !errors.Is(err, enforce.ErrUnavailable) || time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	t.Logf("released %v after containerd answered", time.Since(begun))
	if s, err := e.Status(t.Context(), id); err != nil || s.Paused || !s.Verified || r.stopped(t, id) {
		t.Errorf("status %+v, %v", s, err)
	}
}

// Somebody set the freezer by hand, so that containerd and the kernel differ. Whatever they say
// before, they agree afterwards.
func TestLostTrack(t *testing.T) {
	r := newRig(t, containerdtest.New(t), "default")
	kernel := freezer.Kernel{Proc: "/proc"}
	for name, tt := range map[string]struct{ says, is bool }{
		"says paused, runs":  {true, false},
		"says runs, stopped": {false, true},
	} {
		for _, stop := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stop %v", name, stop), func(t *testing.T) {
				e, j := r.enforcer(t)
				id := r.run(t)
				if err := j.Put(enforcetest.HoldOf(id)); err != nil {
					t.Fatal(err)
				}
				if tt.says {
					r.setPaused(t, id, true)
				}
				if err := kernel.Set(id, r.pid(t, id), tt.is); err != nil {
					t.Fatal(err)
				}
				do := func() error { return e.Unpause(t.Context(), id) }
				if stop {
					do = func() error { return e.Pause(t.Context(), enforcetest.HoldOf(id)) }
				}
				if err := do(); err != nil {
					t.Fatal(err)
				}
				if got := r.stopped(t, id); got != stop {
					t.Errorf("stopped %v, want %v", got, stop)
				}
				if err := e.Unpause(t.Context(), id); stop && err != nil {
					t.Error(err)
				}
				if s, err := e.Status(t.Context(), id); err != nil || s.Paused || !s.Verified {
					t.Errorf("in the end: %+v, %v", s, err)
				}
			})
		}
	}
}

// How long a container takes to stop, and to go on: by the API, and by the freezer alone.
func BenchmarkPauseAndUnpause(b *testing.B) {
	r := newRig(b, containerdtest.New(b), "default")
	id := r.run(b)
	pid := r.pid(b, id)
	kernel := freezer.Kernel{Proc: "/proc"}
	await := func(frozen bool) {
		for got, err := kernel.Frozen(pid); got != frozen; got, err = kernel.Frozen(pid) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, do := range map[string]func(frozen bool) error{
		"api": func(frozen bool) error {
			if frozen {
				return r.client.Pause(b.Context(), "default", id)
			}
			return r.client.Resume(b.Context(), "default", id)
		},
		"freezer": func(frozen bool) error { return kernel.Set(id, pid, frozen) },
	} {
		b.Run(name, func(b *testing.B) {
			var took [2][]time.Duration
			for b.Loop() {
				for i, frozen := range []bool{true, false} {
					begun := time.Now()
					if err := do(frozen); err != nil {
						b.Fatal(err)
					}
					await(frozen)
					took[i] = append(took[i], time.Since(begun))
				}
			}
			for i, what := range []string{"pause", "unpause"} {
				slices.Sort(took[i])
				b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds())/1000, "ms/"+what+"-p50")
				b.ReportMetric(float64(took[i][len(took[i])*99/100].Microseconds())/1000, "ms/"+what+"-p99")
			}
		})
	}
}
