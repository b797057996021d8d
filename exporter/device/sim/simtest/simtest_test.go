package simtest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/workload"
)

// quick is a card on which a 512² task has the phases of a large one, but ten
// times as fast.
func quick() sim.Options {
	return sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(10)}}}
}

var phases = []string{
	"start", "init_begin", "init", "context", "host_begin", "host_end", "copyin_begin", "copyin_end",
	"launch", "kernels_end", "copyout_begin", "copyout_end", "exit",
}

func TestProcess(t *testing.T) {
	s := simtest.Start(t, quick())
	p := s.StartProcess(t, "--n", "512")
	if err := p.Wait(t); err != nil {
		t.Fatal(err)
	}
	var last time.Time
	events := p.Timeline(t)
	if len(events) != len(phases) {
		t.Fatalf("got %d events, want %d: %v", len(events), len(phases), events)
	}
	for i, e := range events {
		if e.Name != phases[i] || e.PID != p.PID || e.Time.Before(last) {
			t.Errorf("event %d: %v, want %s of %d after %v", i, e, phases[i], p.PID, last)
		}
		last = e.Time
	}
}

func TestContainer(t *testing.T) {
	docker := simtest.Docker(t)
	opt := quick()
	opt.ListDelay = -1
	s := simtest.Start(t, opt)
	c := s.StartContainer(t, docker, simtest.Spec{
		Image: simtest.Image(t, docker), Args: []string{"--n", "512"}, Rests: true,
	})
	c.Await(t, "context")
	r, err := s.Dial(t).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := r.GPUs[0].Processes; len(got) != 1 || got[0].PID != c.PID {
		t.Errorf("processes %v, want the container's host PID %d", got, c.PID)
	}
	c.Begin(t)
	if code := c.Wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A failed test shows how the program ended.
func TestFailureShowsHowTheProgramEnded(t *testing.T) {
	s := simtest.Start(t, quick())
	t.Run("process", func(t *testing.T) {
		f := &failure{TB: t}
		f.await(s.StartProcess(t, "--no-such-option"))
		if !strings.Contains(f.text, `without "exit"`) || !strings.Contains(f.text, "exit status 2") {
			t.Error(f.text)
		}
	})
	t.Run("container", func(t *testing.T) {
		docker := simtest.Docker(t)
		f := &failure{TB: t}
		f.await(s.StartContainer(t, docker, simtest.Spec{Image: simtest.Image(t, docker), Args: []string{"--no-such-option"}}))
		if !strings.Contains(f.text, `without "exit"`) || !strings.Contains(f.text, "exited, exit code 2") || !strings.Contains(f.text, `no option "--no-such-option"`) {
			t.Error(f.text)
		}
	})
}

// failure keeps what a test would fail with.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *failure) await(tenant interface {
	Await(testing.TB, string) workload.Event
}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		tenant.Await(f, "exit")
	}()
	<-done
}
