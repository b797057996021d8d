package memory

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
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

// TestFailuresThatEnd: a failure for want of a reading ends with a reading, any other with its
// container.
func TestFailuresThatEnd(t *testing.T) {
	const unread, slipped = "it cannot be read", "a call ran"
	failed := func(s *Service) { s.o.Failed("a", slipped) }
	blind := func(s *Service) { s.o.Unread("a", unread) }
	read := func(s *Service) { s.o.Unread("a", "") }
	covers := func(id string) func(*Service) { return func(s *Service) { s.keepFailures([]Target{{ID: id}}) } }
	for name, tt := range map[string]struct {
		steps []func(*Service)
		want  string
	}{
		"it cannot be read":                  {[]func(*Service){blind, covers("a")}, unread},
		"it can be read again":               {[]func(*Service){blind, read}, ""},
		"it cannot, for the second time":     {[]func(*Service){blind, read, blind}, unread},
		"it was read, and a call had run":    {[]func(*Service){failed, read}, slipped},
		"both, and it is read":               {[]func(*Service){failed, blind, read}, slipped},
		"both the other way, and it is read": {[]func(*Service){blind, failed, read}, slipped},
		"what lasts is told":                 {[]func(*Service){failed, blind}, slipped},
		"it is gone":                         {[]func(*Service){failed, blind, covers("b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewService(Options{Logger: slog.New(slog.DiscardHandler)}, nil)
			for _, step := range tt.steps {
				step(s)
			}
			if why, is := s.Failures()["a"]; why != tt.want || is != (tt.want != "") {
				t.Errorf("it fails: %v, as %q; want %q", is, why, tt.want)
			}
		})
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
