package sensor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
)

func TestCallsOutliveOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sensor.Calls{Limit: 3 * time.Second}
		gate := make(chan struct{})
		hang := func() error { <-gate; return nil }
		began := time.Now()
		if err := c.Do(t.Context(), 1, hang); !errors.Is(err, sensor.ErrHanging) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v, want ErrHanging after the limit", err, time.Since(began))
		}
		began = time.Now()
		if err := c.Do(t.Context(), 1, func() error { t.Error("called"); return nil }); !errors.Is(err, sensor.ErrHanging) {
			t.Errorf("the same process: %v", err)
		}
		trouble := errors.New("trouble")
		if err := c.Do(t.Context(), 2, func() error { return trouble }); !errors.Is(err, trouble) {
			t.Errorf("another process: %v", err)
		}
		ran := ""
		c.Then(1, func() { ran += "a" })
		c.Then(1, func() { ran += "b" })
		c.Then(2, func() { ran += "now" })
		if ran != "now" || time.Since(began) != 0 {
			t.Errorf("ran %q after %v; what follows the call that hangs must wait, and nothing else", ran, time.Since(began))
		}
		close(gate)
		synctest.Wait()
		if ran != "nowb" {
			t.Errorf("ran %q", ran)
		}
		if err := c.Do(t.Context(), 1, func() error { return nil }); err != nil {
			t.Errorf("after it has returned: %v", err)
		}
	})
}

func TestCallsThatHangAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c sensor.Calls
		gate := make(chan struct{})
		var calls atomic.Int64
		for pid := range 100 {
			if err := c.Do(t.Context(), pid, func() error { calls.Add(1); <-gate; return nil }); !errors.Is(err, sensor.ErrHanging) {
				t.Errorf("process %d: %v", pid, err)
			}
		}
		if n := calls.Load(); n != 64 {
			t.Errorf("%d calls hang, want at most 64", n)
		}
		c.Then(99, func() {}) // in place of its call
		close(gate)
		synctest.Wait()
		if n := calls.Load(); n != 99 {
			t.Errorf("%d of 100 calls ran once they returned, want all but the one that was replaced", n)
		}
	})
}

func TestCallsDoNotOutwaitTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sensor.Calls{Limit: time.Hour}
		gate := make(chan struct{})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		if err := c.Do(ctx, 1, func() error { <-gate; return nil }); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(gate)
	})
}

// Who has a call's result may call about the same process again, and a call put off does not keep it.
func TestACallHasEndedWhenItsResultIsThere(t *testing.T) {
	c := sensor.Calls{Limit: time.Minute}
	for range 1000 {
		if err := c.Do(t.Context(), 1, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var c sensor.Calls
		first, second := make(chan struct{}), make(chan struct{})
		result := make(chan error, 1)
		go func() { result <- c.Do(t.Context(), 1, func() error { <-first; return nil }) }()
		synctest.Wait()
		if err := c.Do(t.Context(), 1, func() error { <-second; return nil }); !errors.Is(err, sensor.ErrHanging) {
			t.Errorf("put off: %v", err)
		}
		close(first)
		if err := <-result; err != nil {
			t.Errorf("the first: %v", err)
		}
		close(second)
	})
}
