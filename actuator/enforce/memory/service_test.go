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
	s.why = nil // as after Open
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
		if s.taken(step.taken) != step.taken {
			t.Errorf("step %d: it is not what Cover says", i)
		}
		if n := strings.Count(text.String(), "allocations of GPU memory pass"); n != step.want {
			t.Errorf("step %d: %d reports, want %d", i, n, step.want)
		}
		if err := s.Why(); !errors.Is(err, step.why) {
			t.Errorf("step %d: Why says %v, want %v", i, err, step.why)
		}
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
