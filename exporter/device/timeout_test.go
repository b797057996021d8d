package device_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/device"
)

// hanging is a device whose Read waits for a value on gate, when it has one.
type hanging struct {
	gate   chan struct{}
	reads  atomic.Int64
	closed atomic.Int64
}

func (h *hanging) Read(context.Context) (device.Reading, error) {
	n := h.reads.Add(1)
	if h.gate != nil {
		<-h.gate
	}
	return device.Reading{GPUs: []device.GPU{{Index: int(n)}}}, nil
}

func (h *hanging) Close() error { h.closed.Add(1); return nil }

func TestGuardPassesThrough(t *testing.T) {
	h := &hanging{}
	g := device.WithTimeout(h, time.Minute)
	r, err := g.Read(t.Context())
	if err != nil || len(r.GPUs) != 1 {
		t.Fatalf("Read = %v, %v", r, err)
	}
	if err := g.Close(); err != nil || h.closed.Load() != 1 {
		t.Fatalf("Close = %v, closed %d times", err, h.closed.Load())
	}
	if err := g.Close(); err != nil || h.closed.Load() != 1 {
		t.Errorf("a second Close did something: %v, closed %d times", err, h.closed.Load())
	}
	if _, err := g.Read(t.Context()); err == nil {
		t.Error("Read after Close gave no error")
	}
}

func TestGuardSurvivesAHangingDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{gate: make(chan struct{})}
		g := device.WithTimeout(h, time.Second)
		began := time.Now()
		if _, err := g.Read(t.Context()); !errors.Is(err, device.ErrNotAnswering) {
			t.Fatalf("Read of a hanging device: %v", err)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("Read waited %v, want the limit", waited)
		}
		goroutines := runtime.NumGoroutine()
		for range 100 {
			if _, err := g.Read(t.Context()); !errors.Is(err, device.ErrNotAnswering) {
				t.Fatalf("Read while hanging: %v", err)
			}
		}
		if h.reads.Load() != 1 {
			t.Errorf("%d calls went into the hanging driver, want 1", h.reads.Load())
		}
		if now := runtime.NumGoroutine(); now > goroutines {
			t.Errorf("goroutines piled up: %d, then %d", goroutines, now)
		}
		close(h.gate) // the driver comes back
		synctest.Wait()
		r, err := g.Read(t.Context())
		if err != nil || r.GPUs[0].Index != 2 {
			t.Errorf("after the recovery: %v, %v; want a fresh reading", r, err)
		}
	})
}

func TestGuardClosesWhenTheCallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{gate: make(chan struct{})}
		g := device.WithTimeout(h, time.Second)
		_, _ = g.Read(t.Context())
		if err := g.Close(); !errors.Is(err, device.ErrNotAnswering) {
			t.Errorf("Close while hanging: %v", err)
		}
		if h.closed.Load() != 0 {
			t.Error("the device was closed under a running call")
		}
		close(h.gate)
		synctest.Wait()
		if h.closed.Load() != 1 {
			t.Errorf("closed %d times after the call returned, want 1", h.closed.Load())
		}
	})
}

// An ordinary stop finds a reading under way: Close waits for it, for no longer than its limit.
func TestGuardClosesAfterTheCallUnderWay(t *testing.T) {
	for took, want := range map[time.Duration]struct {
		waited time.Duration
		err    error
	}{
		500 * time.Millisecond: {400 * time.Millisecond, nil},
		time.Hour:              {900 * time.Millisecond, device.ErrNotAnswering},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &hanging{gate: make(chan struct{})}
			time.AfterFunc(took, func() { close(h.gate) })
			g := device.WithTimeout(h, time.Second)
			ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer stop()
			_, _ = g.Read(ctx)
			began := time.Now()
			if err := g.Close(); !errors.Is(err, want.err) {
				t.Errorf("%v: Close = %v, want %v", took, err, want.err)
			}
			if waited := time.Since(began); waited != want.waited {
				t.Errorf("%v: Close waited %v, want %v", took, waited, want.waited)
			}
			if closed := h.closed.Load() == 1; closed != (want.err == nil) {
				t.Errorf("%v: closed %v", took, closed)
			}
			<-h.gate
			synctest.Wait()
			if n := h.closed.Load(); n != 1 {
				t.Errorf("%v: closed %d times in the end", took, n)
			}
		})
	}
}

func TestGuardEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{gate: make(chan struct{})}
		g := device.WithTimeout(h, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read with an expired context: %v", err)
		}
		close(h.gate)
	})
}

// The driver hangs while it is opened: Open returns at the limit, and readings come once the driver
// answers. Where opening fails then, the next reading opens it.
func TestGuardSurvivesADriverThatHangsWhileOpening(t *testing.T) {
	broken := errors.New("broken")
	for _, first := range []error{nil, broken} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			h, opened := &hanging{}, 0
			g := device.Opening(func() (device.Source[device.Reading], error) {
				<-gate
				if opened++; opened == 1 && first != nil {
					return nil, first
				}
				return h, nil
			}, time.Second)
			began := time.Now()
			if err := g.Open(); !errors.Is(err, device.ErrNotAnswering) {
				t.Fatalf("Open = %v", err)
			}
			if waited := time.Since(began); waited != time.Second {
				t.Errorf("Open waited %v, want the limit", waited)
			}
			if _, err := g.Read(t.Context()); !errors.Is(err, device.ErrNotAnswering) || time.Since(began) != time.Second {
				t.Errorf("Read while opening: %v", err)
			}
			close(gate) // the driver comes back
			synctest.Wait()
			if r, err := g.Read(t.Context()); err != nil || len(r.GPUs) != 1 {
				t.Errorf("after the recovery, opening gave %v first: %v, %v", first, r, err)
			}
			if err := g.Close(); err != nil || h.closed.Load() != 1 {
				t.Errorf("Close = %v, closed %d times", err, h.closed.Load())
			}
		})
	}
}

func TestGuardClosesWhatIsOpenedTooLate(t *testing.T) {
	for _, fails := range []error{nil, errors.New("broken")} {
		synctest.Test(t, func(t *testing.T) {
			gate, h := make(chan struct{}), &hanging{}
			g := device.Opening(func() (device.Source[device.Reading], error) {
				<-gate
				if fails != nil {
					return nil, fails
				}
				return h, nil
			}, time.Second)
			_ = g.Open()
			if err := g.Close(); !errors.Is(err, device.ErrNotAnswering) {
				t.Errorf("Close while opening: %v", err)
			}
			close(gate)
			synctest.Wait()
			if n := h.closed.Load(); (n == 1) != (fails == nil) {
				t.Errorf("opening gave %v: closed %d times", fails, n)
			}
		})
	}
}

func TestOpenSaysWhatFailed(t *testing.T) {
	broken := errors.New("broken")
	g := device.Opening(func() (device.Source[device.Reading], error) { return nil, broken }, time.Second)
	if err := g.Open(); !errors.Is(err, broken) {
		t.Errorf("Open = %v", err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("Close of what was never open: %v", err)
	}
}
