package tracker

import (
	"testing"

	"github.com/laxity/laxity/exporter/task"
)

// A snapshot that wakes nobody takes the place of an older one that waits for its reader: no
// reader gets an older one after a newer one.
func TestShowWakesNobody(t *testing.T) {
	b := newBoard(&task.Snapshot{Sequence: 1})
	awake, slow := b.watch(t.Context()), b.watch(t.Context())
	<-awake
	b.show(&task.Snapshot{Sequence: 2})
	select {
	case s := <-awake:
		t.Errorf("it is woken for %d", s.Sequence)
	default:
	}
	if s := <-slow; s.Sequence != 2 || b.current.Load().Sequence != 2 {
		t.Errorf("the slow reader got %d, the board has %d; want 2", s.Sequence, b.current.Load().Sequence)
	}
}
