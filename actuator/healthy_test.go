package actuator_test

import (
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
)

// An actuator that hangs says so to what would restart it.
func TestHangingIsNotHealthy(t *testing.T) {
	var now clock
	b := newMemoryBench(t, false, func(o *actuator.Options) {
		o.Now = now.now
	})
	b.limited("a", 900)
	b.await("it is covered", func() bool { return b.guard.covers("a") })
	if code, text := b.get("/-/healthy"); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	b.guard.mu.Lock() // each of the loop's calls hangs
	before := b.guard.begun.Load()
	release := sync.OnceFunc(b.guard.mu.Unlock)
	t.Cleanup(release)
	b.await("it hangs", func() bool { return b.guard.begun.Load() > before }) // and so makes no other step
	now.advance(11 * time.Second)
	if code, text := b.get("/-/healthy"); code != 503 {
		t.Errorf("while it hangs: %d %s", code, text)
	}
	release()
	b.await("it decides again", func() bool { code, _ := b.get("/-/healthy"); return code == 200 })
}
