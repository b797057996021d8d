package gate

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoundsRestWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 10 * time.Millisecond
		changed, woken := make(chan struct{}, 1), make(chan struct{}, 1)
		var looked, told atomic.Int64
		var again atomic.Bool
		go rounds{
			every: every, changed: changed, woken: woken,
			tell: func() { told.Add(1) },
			look: func() bool { looked.Add(1); return again.Load() },
		}.run(t.Context())
		for _, step := range []struct {
			what         string
			signal       chan struct{} // sent before
			again        bool          // somebody waits
			lasts        time.Duration
			looked, told int64
		}{
			{"looks once at the beginning", nil, false, time.Hour, 1, 0},
			{"rests", nil, false, time.Hour, 0, 0},
			{"a change", changed, false, time.Hour, 1, 1},
			{"a change, told before the next look", changed, true, every - 1, 0, 1},
			{"somebody waits", nil, true, 10 * every, 10, 0},
			{"a change between looks brings none forward", changed, true, 10 * every, 10, 1},
			{"nobody waits any more", nil, false, time.Hour, 1, 0},
			{"woken", woken, false, time.Hour, 1, 0},
		} {
			looked.Store(0)
			told.Store(0)
			again.Store(step.again)
			if step.signal != nil {
				step.signal <- struct{}{}
			}
			time.Sleep(step.lasts)
			synctest.Wait()
			if l, n := looked.Load(), told.Load(); l != step.looked || n != step.told {
				t.Errorf("%s: looked %d times, told %d times; want %d, %d", step.what, l, n, step.looked, step.told)
			}
		}
	})
}
