package channels

import (
	"sync/atomic"
	"testing"
	"time"
)

// A watch says when a counter moved last, and when it moved first after arm.
func TestWatch(t *testing.T) {
	var counter, looks atomic.Uint32
	looked := make(chan struct{})
	w := follow(func() uint32 {
		n := counter.Load()
		looks.Add(1)
		select {
		case looked <- struct{}{}:
		default:
		}
		return n
	}, time.Microsecond)
	defer w.end()
	look := func() { // two whole looks
		<-looked
		<-looked
		<-looked
	}
	look()
	if at, ok := w.movedFirst(); ok {
		t.Errorf("it has not moved, and did so at %v", at)
	}
	before := time.Now()
	counter.Add(1)
	look()
	first, ok := w.movedFirst()
	if !ok || first.Before(before) || !first.Equal(w.movedLast()) {
		t.Errorf("moved first %v (%v), last %v, after %v", first, ok, w.movedLast(), before)
	}
	counter.Add(1)
	look()
	if again, _ := w.movedFirst(); !again.Equal(first) || !w.movedLast().After(first) {
		t.Errorf("moved first %v, then %v, last %v", first, again, w.movedLast())
	}
	w.arm()
	look()
	if _, ok := w.movedFirst(); ok {
		t.Error("it has not moved since arm")
	}
}
