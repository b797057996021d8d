package uprobe_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/sensortest"
	"github.com/laxity/laxity/exporter/sensor/uprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

var conformance = sensortest.Case{
	Open: func(t testing.TB) sensortest.Starts { return open(t) },
	Kind: sensor.Init,
	Begin: func(p *cudatest.Program) cudatest.Called {
		return p.Call("cuInit")
	},
	Names: true,
}

func open(t testing.TB) *uprobe.Sensor {
	t.Helper()
	s, err := uprobe.New(uprobe.Options{Rescan: 50 * time.Millisecond})
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		needtest.BPF.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) { conformance.Conformance(t) }

func TestLifeOfATask(t *testing.T) {
	built := cudatest.Build(t)
	r := conformance.Run(t)
	p := built.Start(t)
	p.Open()
	if err := r.Discover(p.PID); err != nil {
		t.Fatal(err)
	}
	r.Expect(t, p, sensor.Init, p.Call("cuInit"))
	tracker := r.Starts.(sensor.BusyTracker)
	if err := tracker.Track(p.PID); err != nil {
		t.Fatal(err)
	}
	r.Expect(t, p, sensor.ContextMade, p.Call("cuDevicePrimaryCtxRetain"))
	for range 3 {
		r.Expect(t, p, sensor.Launched, p.Call("cuLaunchKernel"))
		p.CallTimes("cuLaunchKernel", 100)
		r.Expect(t, p, sensor.WorkDone, p.Call("cuStreamSynchronize"))
	}
	tracker.Untrack(p.PID)
	tracker.Untrack(p.PID)
}

// watches reports whether the sensor watches this library, whatever the machine has of its
// own.
func watches(s *uprobe.Sensor, built cudatest.Built) bool {
	return slices.Contains(s.Stats().Libraries, built.Library)
}

// A program loads a copy that was not there when its container began.
func TestRescanFindsWhatCameLater(t *testing.T) {
	built := cudatest.Build(t)
	r := conformance.Run(t)
	p := built.Start(t)
	if err := r.Discover(p.PID); err != nil {
		t.Fatal(err)
	}
	p.Open()
	s := r.Starts.(*uprobe.Sensor)
	for end := time.Now().Add(30 * time.Second); !watches(s, built); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not found")
		}
	}
	r.Expect(t, p, sensor.Init, p.Call("cuInit"))
}

// What only one process used is not kept once that has gone.
func TestRescanReleasesTheGone(t *testing.T) {
	built := cudatest.Build(t)
	r := conformance.Run(t)
	s := r.Starts.(*uprobe.Sensor)
	t.Run("process", func(t *testing.T) {
		p := built.Start(t) // ends with this subtest
		p.Open()
		if err := r.Discover(p.PID); err != nil {
			t.Fatal(err)
		}
		if !watches(s, built) {
			t.Fatalf("%+v", s.Stats())
		}
	})
	for end := time.Now().Add(30 * time.Second); watches(s, built); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still watched: %+v", s.Stats())
		}
	}
}

// While nobody reads, events fill their room; what comes then is counted.
func TestEventsWithoutRoomAreCounted(t *testing.T) {
	built := cudatest.Build(t)
	s := open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	p := built.Start(t)
	p.Open()
	if err := s.Discover(p.PID); err != nil {
		t.Fatal(err)
	}
	for programs := 1; s.Lost() == 0; programs++ {
		if programs > 2000 {
			t.Fatal("none was lost")
		}
		p.Call("cuInit")
		p.Call("cuDevicePrimaryCtxRetain")
		if lost := s.Lost(); programs == 500 && lost > 0 {
			t.Errorf("%d events of %d programs had no room", lost, programs)
		}
		p.Exec() // the next one, in the same process
	}
}

// That a process's work is done is told once, and a server that is idle calls nothing
// that would tell it again: if that finds no room it is told later.
func TestWorkDoneWithoutRoomIsToldLater(t *testing.T) {
	built := cudatest.Build(t)
	s := open(t)
	server, other := built.Start(t), built.Start(t)
	server.Open()
	if err := s.Discover(server.PID); err != nil {
		t.Fatal(err)
	}
	if err := s.Track(server.PID); err != nil {
		t.Fatal(err)
	}
	server.Call("cuLaunchKernel")
	for s.Lost() == 0 { // nobody reads
		other.Call("cuInit")
		other.Call("cuDevicePrimaryCtxRetain")
		other.Exec()
		other.Open()
	}
	for lost := s.Lost(); s.Lost() == lost; { // small ones have no room, either
		server.Call("cuLaunchKernel")
		server.Call("cuStreamSynchronize")
	}
	done := server.Call("cuStreamSynchronize")
	ctx, stop := context.WithCancel(t.Context())
	events, ended := make(chan sensor.Event), make(chan error, 1)
	go func() { ended <- s.Run(ctx, events) }()
	var launched, last sensor.Event
	for limit := time.After(30 * time.Second); last.Time.IsZero() || last.Time.Before(launched.Time); {
		select {
		case e := <-events:
			switch {
			case e.PID != server.PID:
			case e.Kind == sensor.Launched:
				launched = e
			case e.Kind == sensor.WorkDone && !e.Time.After(done.After):
				last = e
			}
		case <-limit:
			t.Fatalf("launched at %v, and done never", launched.Time)
		}
	}
	stop()
	for over := false; !over; {
		select {
		case <-events:
		case <-ended:
			over = true
		}
	}
}

func TestSupported(t *testing.T) {
	if err := uprobe.Supported(uprobe.Options{}); err != nil && !errors.Is(err, sensor.ErrUnsupported) {
		t.Error(err)
	}
}
