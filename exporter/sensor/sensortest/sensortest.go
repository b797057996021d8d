// Package sensortest is the conformance suite of the sensors for starts. A program that calls
// a stand-in for the CUDA driver runs on the host and in real containers, which map the
// host's file or a copy in their image.
//
// For tests only.
package sensortest

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// patience only bounds a failure.
const patience = 30 * time.Second

// Starts is what the suite needs of a sensor.
type Starts interface {
	sensor.Starts
	sensor.Finder
	io.Closer
}

// Case is one sensor.
type Case struct {
	// Open opens it, or skips the test.
	Open func(t testing.TB) Starts
	// Kind is the first event that it reports of a process. Begin makes a process do it.
	Kind  sensor.Kind
	Begin func(*cudatest.Program) cudatest.Called
	// Names says that such an event names its container.
	Names bool
}

// Running is a sensor at work.
type Running struct {
	Starts
	c      Case
	events chan sensor.Event
	cancel context.CancelFunc
	ended  chan error
}

// Run opens a sensor and runs it until the test ends.
func (c Case) Run(t testing.TB) *Running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &Running{Starts: c.Open(t), c: c, events: make(chan sensor.Event), cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- r.Run(ctx, r.events) }()
	t.Cleanup(func() { r.Stop(t) })
	return r
}

// Stop ends the sensor and waits for it.
func (r *Running) Stop(t testing.TB) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		if !errors.Is(err, context.Canceled) {
			t.Error("Run returned", err)
		}
		r.ended <- err
	case <-time.After(patience):
		t.Error("Run does not return")
	}
}

// Next returns the next event of one process. Events of other processes are dropped.
func (r *Running) Next(t testing.TB, pid int) sensor.Event {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-r.events:
			if e.PID == pid {
				return e
			}
		case <-timeout:
			t.Fatalf("no event of process %d came", pid)
		}
	}
}

// Expect checks the next event of a process against the program's own times.
func (r *Running) Expect(t testing.TB, p *cudatest.Program, kind sensor.Kind, c cudatest.Called) sensor.Event {
	t.Helper()
	e := r.Next(t, p.PID)
	if e.Kind != kind {
		t.Errorf("got %+v, want %s", e, kind)
	}
	if e.Source == "" || e.Time.Before(c.Before) {
		t.Errorf("got %+v of a call from %v to %v", e, c.Before, c.After)
	}
	return e
}

// begins checks the first event of a program in this container, or of the host.
func (r *Running) begins(t testing.TB, p *cudatest.Program, container string) {
	t.Helper()
	e := r.Expect(t, p, r.c.Kind, r.c.Begin(p))
	if !r.c.Names {
		container = ""
	}
	if e.Container != container || (r.c.Names && e.Started <= 0) {
		t.Errorf("got %+v, want container %q", e, container)
	}
}

// Conformance runs every rule of sensor.Starts and sensor.Finder.
func (c Case) Conformance(t *testing.T) {
	t.Run("HostProcess", c.hostProcess)
	t.Run("LoadedLibrary", c.loadedLibrary)
	t.Run("MountedLibrary", c.mountedLibrary)
	t.Run("CopyInTheImage", c.copyInTheImage)
	t.Run("ReleasedContainerCanGo", c.releasedContainerCanGo)
	t.Run("NoLibraryIsNoError", c.noLibraryIsNoError)
	t.Run("NoProcess", c.noProcess)
}

func (c Case) hostProcess(t *testing.T) {
	built := cudatest.Build(t)
	r := c.Run(t)
	first := built.Start(t)
	first.Open()
	if err := r.Discover(first.PID); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.begins(t, built.Start(t), "")
	}
}

// A library at a place that only its process knows is found once the process has loaded it.
func (c Case) loadedLibrary(t *testing.T) {
	built := cudatest.Build(t)
	r := c.Run(t)
	first := built.Start(t)
	first.Open()
	for range 2 {
		if err := r.Loaded(first.PID); err != nil {
			t.Fatal(err)
		}
		r.begins(t, built.Start(t), "")
	}
	if err := r.Loaded(1 << 30); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		t.Errorf("no process: %v, want os.ErrNotExist", err)
	}
}

// A mounted library is one file for all containers. A sensor that found it in one container
// sees the next containers from their first moment.
func (c Case) mountedLibrary(t *testing.T) {
	h := newHost(t)
	r := c.Run(t)
	id, first := h.start(t, h.mounted)
	if err := r.Discover(first.PID); err != nil {
		t.Fatal(err)
	}
	other, second := h.start(t, h.mounted)
	r.begins(t, first, id)
	r.begins(t, second, other)
}

func (c Case) copyInTheImage(t *testing.T) {
	h := newHost(t)
	r := c.Run(t)
	for range 2 {
		id, p := h.start(t, h.copied)
		if err := r.Discover(p.PID); err != nil {
			t.Fatal(err)
		}
		r.begins(t, p, id)
	}
}

// A watched file keeps its file system alive. A container must be removable all the same, and
// its files gone once it is released.
func (c Case) releasedContainerCanGo(t *testing.T) {
	h := newHost(t)
	r := c.Run(t)
	id, p := h.start(t, h.copied)
	if err := r.Discover(p.PID); err != nil {
		t.Fatal(err)
	}
	r.begins(t, p, id)
	if err := h.client.ContainerRemove(t.Context(), id, container.RemoveOptions{Force: true}); err != nil {
		t.Error("remove a container that is watched:", err)
	}
	r.Release(p.PID)
	id, next := h.start(t, h.copied)
	if err := r.Discover(next.PID); err != nil {
		t.Fatal(err)
	}
	r.begins(t, next, id)
}

func (c Case) noLibraryIsNoError(t *testing.T) {
	r := c.Run(t)
	if err := r.Discover(os.Getpid()); err != nil {
		t.Error(err)
	}
	r.Release(os.Getpid())
	r.Release(os.Getpid())
}

func (c Case) noProcess(t *testing.T) {
	r := c.Run(t)
	if err := r.Discover(1 << 30); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}
