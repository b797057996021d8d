package docker_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/container/docker"
	"github.com/laxity/laxity/exporter/container/docker/dockertest"
	"github.com/laxity/laxity/internal/daemon/podman"
	"github.com/laxity/laxity/internal/enginetest"
)

// host drives the real engine for the conformance suite.
type host struct {
	client *client.Client
	image  string
	engine *docker.Engine
}

func newHost(t *testing.T) *host {
	t.Helper()
	c := dockertest.Client(t)
	engine, err := docker.New(docker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return &host{client: c, image: dockertest.Image(t, c, []string{"sleep"}, nil), engine: engine}
}

func (h *host) Source() container.Source { return h.engine }

func (h *host) Run(t *testing.T, name string, labels map[string]string) string {
	return dockertest.Start(t, h.client, dockertest.Spec{
		Name: name, Image: h.image, Command: []string{"sleep", "3600"}, Labels: labels,
	})
}

func (h *host) Pause(t *testing.T, id string)   { check(t, h.client.ContainerPause(t.Context(), id)) }
func (h *host) Unpause(t *testing.T, id string) { check(t, h.client.ContainerUnpause(t.Context(), id)) }
func (h *host) Rename(t *testing.T, id, name string) {
	check(t, h.client.ContainerRename(t.Context(), id, name))
}
func (h *host) Stop(t *testing.T, id string) {
	now := 0
	check(t, h.client.ContainerStop(t.Context(), id, api.StopOptions{Timeout: &now}))
}
func (h *host) Remove(t *testing.T, id string) {
	check(t, h.client.ContainerRemove(t.Context(), id, api.RemoveOptions{Force: true}))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	enginetest.Each(t, func(t *testing.T) { containertest.Conformance(t, dockertest.UniqueName()+"-", newHost(t)) })
}

// A container that comes and goes while others list must disturb nobody.
func TestListWhileContainersVanish(t *testing.T) { enginetest.Each(t, listWhileContainersVanish) }

func listWhileContainersVanish(t *testing.T) {
	h := newHost(t)
	_, err := h.engine.List(t.Context()) // the first call of Docker's client agrees on a version, and must be alone
	check(t, err)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for range 3 {
			id := h.Run(t, dockertest.UniqueName(), nil)
			h.Remove(t, id)
		}
	})
	for range 4 { // so that one of them asks for a container in the midst of its removal
		wg.Go(func() {
			for {
				if _, err := h.engine.List(t.Context()); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	wg.Wait()
}

func TestStartOfAShortContainer(t *testing.T) { enginetest.Each(t, startOfAShortContainer) }

func startOfAShortContainer(t *testing.T) {
	h := newHost(t)
	events, err := h.engine.Watch(t.Context())
	check(t, err)
	id := dockertest.Start(t, h.client, dockertest.Spec{
		Image: h.image, Command: []string{"sleep", "0"}, Labels: map[string]string{"laxity.deadline": "1s"},
	})
	var kinds []container.EventKind
	for late := time.After(time.Minute); !slices.Contains(kinds, container.Died); {
		var e container.Event
		select {
		case e = <-events:
		case <-late:
			t.Fatalf("got only %v", kinds)
		}
		if e.ID != id {
			continue
		}
		kinds = append(kinds, e.Kind)
		if e.Kind == container.Started && e.Container.Labels["laxity.deadline"] != "1s" {
			t.Errorf("started as %+v", e.Container)
		}
	}
	if want := []container.EventKind{container.Started, container.Died}; fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}

// The cgroup of a real container's process names the container.
func TestOfPIDOnTheEngine(t *testing.T) { enginetest.Each(t, ofPIDOnTheEngine) }

func ofPIDOnTheEngine(t *testing.T) {
	h := newHost(t)
	id := h.Run(t, dockertest.UniqueName(), nil)
	got, ok, err := container.Proc("/proc").OfPID(dockertest.PID(t, h.client, id))
	if err != nil || !ok || got != id {
		t.Errorf("got %q, %v, %v; want %q", got, ok, err, id)
	}
}

// Podman as an ordinary user, with control groups of version 2: the same rows.
func TestConformanceRootless(t *testing.T) {
	enginetest.Rootless(t)
	containertest.Conformance(t, dockertest.UniqueName()+"-", newHost(t))
	ofPIDOnTheEngine(t)
}

// A process in a pod of Podman belongs to its container, not to the pod, which has such an id too.
func TestOfPIDInAPod(t *testing.T) {
	e := enginetest.Podman(t)
	h := newHost(t)
	pod := dockertest.UniqueName()
	inPodman(t, e, "pod", "create", "--name="+pod, "--network=none", "--infra-image="+h.image, "--infra-command=sleep 3600")
	t.Cleanup(func() { // before the image of its infra container
		_ = exec.Command("podman", "--url="+e.Host, "pod", "rm", "--force", "--time=0", pod).Run()
	})
	id := inPodman(t, e, "run", "--detach", "--pod="+pod, h.image, "sleep", "3600")
	pid := dockertest.PID(t, h.client, id)
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	check(t, err)
	if !strings.Contains(string(group), "/libpod_parent/") || strings.Count(string(group), "/libpod_parent/libpod-") > 0 {
		t.Errorf("not below the pod: %s", group)
	}
	if got, ok, err := container.Proc("/proc").OfPID(pid); err != nil || !ok || got != id {
		t.Errorf("got %q, %v, %v; want %q, of\n%s", got, ok, err, id, group)
	}
}

// inPodman runs the command podman on the test's own engine.
func inPodman(t *testing.T, e *podman.Engine, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "podman", append([]string{"--url=" + e.Host}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("podman %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The service is killed and starts again, as in an upgrade: the stream ends, and the next one
// tells of what happens from then on. Containers go on.
func TestServiceStartsAgain(t *testing.T) {
	e := enginetest.Podman(t)
	h := newHost(t)
	id := h.Run(t, dockertest.UniqueName(), nil)
	events, err := h.engine.Watch(t.Context())
	check(t, err)
	check(t, e.Kill())
	for range events { // until it ends
	}
	if _, err := h.engine.List(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("without a service: %v", err)
	}
	check(t, e.Start(t.Context()))
	events, err = h.engine.Watch(t.Context())
	check(t, err)
	if list, err := h.engine.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("listed %+v, %v", list, err)
	}
	h.Pause(t, id)
	if e := <-events; e.Kind != container.Paused || e.ID != id {
		t.Errorf("got %+v", e)
	}
	h.Unpause(t, id)
}

func BenchmarkList(b *testing.B) {
	c := dockertest.Client(b)
	engine, err := docker.New(docker.Options{})
	if err != nil {
		b.Fatal(err)
	}
	image := dockertest.Image(b, c, []string{"sleep"}, nil)
	const containers = 5
	for range containers {
		dockertest.Start(b, c, dockertest.Spec{Image: image, Command: []string{"sleep", "3600"}})
	}
	start := time.Now()
	for b.Loop() {
		if _, err := engine.List(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(b.N)/containers, "µs/container")
}
