package memory

import (
	"bytes"
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
	for i, step := range []struct {
		after time.Duration
		taken bool
		want  int // reports so far
	}{
		{0, true, 0},
		{time.Second, false, 0},
		{guardLease, false, 0},
		{time.Millisecond, false, 1},
		{guardLease, false, 1},
		{time.Second, true, 1},
		{time.Second, false, 1},
		{guardLease + time.Millisecond, false, 2},
	} {
		now = now.Add(step.after)
		if s.taken(step.taken) != step.taken {
			t.Errorf("step %d: it is not what Cover says", i)
		}
		if n := strings.Count(text.String(), "hangs or has ended"); n != step.want {
			t.Errorf("step %d: %d reports, want %d", i, n, step.want)
		}
	}
}
