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
	b.guard.mu.Lock() // Cover hangs
	release := sync.OnceFunc(b.guard.mu.Unlock)
	t.Cleanup(release)
	b.await("it tells", func() bool {
		now.advance(11 * time.Second)
		time.Sleep(10 * time.Millisecond) // some ticks
		code, _ := b.get("/-/healthy")
		return code == 503
	})
	release()
	b.await("it decides again", func() bool { code, _ := b.get("/-/healthy"); return code == 200 })
}
