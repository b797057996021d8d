package gate

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan"
)

// As many of a line are kept unpaused as come in turn soon, and two at least.
func TestAhead(t *testing.T) {
	e := NewEnforcer(EnforcerOptions{})
	for _, tt := range []struct {
		turn time.Duration
		want int
	}{{0, 2}, {3 * time.Second, 2}, {100 * time.Millisecond, 5}, {time.Millisecond, 500}} {
		if got := e.ahead(tt.turn); got != tt.want {
			t.Errorf("turns of %v: %d, want %d", tt.turn, got, tt.want)
		}
	}
}

// After many short turns a long one is noticed while it lasts.
func TestALongTurnUnderWay(t *testing.T) {
	now := time.Now()
	view := map[string]View{
		"a": {Phase: plan.Computing, Since: now.Add(-time.Second)}, "b": {Phase: plan.Computing, Since: now.Add(-2 * time.Second)},
		"c": {Phase: plan.Waiting, Since: now.Add(-time.Hour)},
	}
	if got := underWay(view, now); got != 2*time.Second {
		t.Error(got)
	}
}

func TestTurnIsAMean(t *testing.T) {
	var g Gate
	for range 100 {
		g.took(100 * time.Millisecond)
	}
	if g.took(time.Second); g.Turn() <= 100*time.Millisecond || g.Turn() >= 500*time.Millisecond {
		t.Error(g.Turn())
	}
}
