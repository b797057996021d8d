package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/probetest"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// A guard that takes no targets is reported once, after a while.
func TestGuardThatTakesNothingIsReported(t *testing.T) {
	var text bytes.Buffer
	now := time.Unix(1000, 0)
	s := NewService(Options{Logger: slog.New(slog.NewTextHandler(&text, nil)), Now: func() time.Time { return now }}, nil)
	s.guard, s.why = &Guard{}, nil // as after Open
	s.guard.targets.Store(&[]Target{})
	for i, step := range []struct {
		after time.Duration
		taken bool
		want  int // reports so far
		why   error
	}{
		{0, true, 0, nil},
		{time.Second, false, 0, nil},
		{guardLease, false, 0, nil},
		{time.Millisecond, false, 1, errGuardHangs},
		{guardLease, false, 1, errGuardHangs},
		{time.Second, true, 1, nil},
		{time.Second, false, 1, nil},
		{guardLease + time.Millisecond, false, 2, errGuardHangs},
	} {
		now = now.Add(step.after)
		s.note(step.taken)
		if n := strings.Count(text.String(), "allocations of GPU memory pass"); n != step.want {
			t.Errorf("step %d: %d reports, want %d", i, n, step.want)
		}
		if err := s.Why(); !errors.Is(err, step.why) {
			t.Errorf("step %d: Why says %v, want %v", i, err, step.why)
		}
	}
	// Nobody calls Cover while it hangs, where memory is not planned without a guard.
	s.guard.targets.Store(nil) // it takes what was handed over last
	if err := s.Why(); err != nil || strings.Count(text.String(), "guarded again") != 2 {
		t.Errorf("it goes on, and Why says %v: %s", err, text.String())
	}
}

// A guard that ends before it is told to is no longer said to guard.
func TestGuardThatEndsIsReported(t *testing.T) {
	failure := errors.New("no memory")
	for name, tt := range map[string]struct {
		told  bool
		ended error
		want  error
	}{
		"it fails":               {ended: failure, want: failure},
		"it ends without reason": {want: errGuardEnded},
		"it is told to":          {told: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewService(Options{Logger: slog.New(slog.DiscardHandler)}, nil)
			s.guard, s.why = &Guard{}, nil // as after Open
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.told {
				cancel()
			}
			if err := s.run(ctx, func(context.Context) error { return tt.ended }); !errors.Is(err, tt.ended) {
				t.Errorf("run returns %v, want %v", err, tt.ended)
			}
			if err := s.Why(); !errors.Is(err, tt.want) || (s.get() == nil) != !tt.told {
				t.Errorf("Why says %v, want %v; guard %v", err, tt.want, s.get())
			}
		})
	}
}

// TestFailuresThatEnd: a failure that passes ends when the guard says so, which is logged once; any other
// ends with its container.
func TestFailuresThatEnd(t *testing.T) {
	const unread, missed, slipped = "it cannot be read", "process 12 cannot be guarded: too many open files", "a call ran"
	failed := func(s *Service) { s.o.Failed("a", slipped) }
	blind := func(s *Service) { s.o.Passing("a", unread) }
	miss := func(s *Service) { s.o.Passing("a", missed) }
	ends := func(s *Service) { s.o.Passing("a", "") }
	covers := func(id string) func(*Service) { return func(s *Service) { s.keepFailures([]Target{{ID: id}}) } }
	for name, tt := range map[string]struct {
		steps []func(*Service)
		want  string
		ended int // how often that one ended is logged
	}{
		"it cannot be read":                  {[]func(*Service){blind, covers("a")}, unread, 0},
		"it can be read again":               {[]func(*Service){blind, ends, ends}, "", 1},
		"it cannot, for the second time":     {[]func(*Service){blind, ends, blind}, unread, 1},
		"a process is missed":                {[]func(*Service){miss, covers("a")}, missed, 0},
		"it is guarded again":                {[]func(*Service){miss, covers("a"), ends}, "", 1},
		"nothing had failed":                 {[]func(*Service){ends}, "", 0},
		"it was read, and a call had run":    {[]func(*Service){failed, ends}, slipped, 0},
		"both, and it is read":               {[]func(*Service){failed, blind, ends}, slipped, 1},
		"both the other way, and it is read": {[]func(*Service){blind, failed, ends}, slipped, 1},
		"what lasts is told":                 {[]func(*Service){failed, blind}, slipped, 0},
		"it is gone":                         {[]func(*Service){failed, blind, covers("b")}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer
			s := NewService(Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}, nil)
			for _, step := range tt.steps {
				step(s)
			}
			if n := strings.Count(text.String(), "is guarded, and within it"); n != tt.ended {
				t.Errorf("its end is logged %d times, want %d: %s", n, tt.ended, text.String())
			}
			if why, is := s.Failures()["a"]; why != tt.want || is != (tt.want != "") {
				t.Errorf("it fails: %v, as %q; want %q", is, why, tt.want)
			}
		})
	}
}

// TestCloseKeepsTheRecordOfWhoStands: if the guard's end could not continue a process, its record stays until
// somebody has done that. A failed end that left nobody stopped leaves no record.
func TestCloseKeepsTheRecordOfWhoStands(t *testing.T) {
	name := cudatest.RecordName(t)
	guard, err := cudaprobe.NewMemoryGuard(cudaprobe.GuardOptions{Pins: name})
	probetest.Need(t, err)
	t.Cleanup(func() {
		if err := errors.Join(guard.Close(), stop.Remove(name)); err != nil {
			t.Error(err)
		}
	})
	p := cudatest.Build(t).Start(t)
	p.Open()
	if err := errors.Join(guard.Renew(time.Hour), guard.Guard(cudaprobe.Guarded{PID: p.PID, Slots: []uint32{0}, On: 1})); err != nil {
		t.Fatal(err)
	}
	called := p.BeginAlloc("cuMemAlloc_v2", 1<<20, 1, 1)
	if e, err := guard.Next(); err != nil || e.PID != p.PID {
		t.Fatalf("%+v, %v", e, err)
	}
	failure := errors.New("open process 12: too many open files")
	closes := func() error {
		s := NewService(Options{Name: name, Logger: slog.New(slog.DiscardHandler)}, nil)
		s.stop, s.ended = func() {}, make(chan error, 1) // as after Open
		s.ended <- failure
		return s.Close()
	}
	if err := closes(); !errors.Is(err, failure) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", p.PID)) {
		t.Errorf("Close returns %v, want that it stands, and why", err)
	}
	if n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: name}); err != nil || n != 1 { // as the guardian does
		t.Fatalf("%d are continued, %v: the record of who stands is gone", n, err)
	}
	if a := called(); a.Count != 1 {
		t.Errorf("%+v", a)
	}
	if err := closes(); !errors.Is(err, failure) {
		t.Errorf("Close returns %v, want %v", err, failure)
	}
	if _, err := stop.OpenRecord(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record of nobody stays: %v", err)
	}
}

// Where there is no guard, nothing is bounded.
func TestMaxWaitIsTheGuards(t *testing.T) {
	s := NewService(Options{Logger: slog.New(slog.DiscardHandler), MaxWait: time.Minute}, nil)
	s.SetMaxWait(time.Hour)
	s.guard = &Guard{} // as after Open
	s.SetMaxWait(2 * time.Hour)
	if d := time.Duration(s.guard.maxWait.Load()); d != 2*time.Hour {
		t.Errorf("the guard has %v", d)
	}
}
