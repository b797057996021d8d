package bounded_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/internal/bounded"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if !bounded.Wait(time.Second, func() { time.Sleep(999 * time.Millisecond) }) {
			t.Error("what ends in time is given up")
		}
		began, gate := time.Now(), make(chan struct{})
		if bounded.Wait(time.Second, func() { <-gate }) || time.Since(began) != time.Second {
			t.Errorf("what hangs was waited for %v", time.Since(began))
		}
		close(gate)
	})
}
