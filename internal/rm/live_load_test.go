package rm_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

// eightStarts starts eight tenants at once, and says how long it took until all of their
// kernels ran.
func eightStarts(t *testing.T) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	began := time.Now()
	var all sync.WaitGroup
	runs := make([]*tenant.Tenant, 8)
	for i := range runs {
		all.Go(func() {
			run, err := tenant.Start(ctx, dir, tenant.Options{Kind: tenant.Steps, Contexts: 1, Most: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			runs[i] = run
		})
	}
	all.Wait()
	took := time.Since(began)
	for _, run := range runs {
		if run != nil {
			if err := run.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	return took
}

// TestLiveStartups: what switching costs eight start-ups, and they it.
func TestLiveStartups(t *testing.T) {
	count := &counter{Kernel: needGPU(t)}
	m := rm.New(count, rm.Options{})
	ctx := t.Context()
	if err := m.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond)
	_, p := liveTenant(t, tenant.Spin, 1)
	groups, err := m.Find(ctx, p)
	if err != nil || len(groups) != 1 {
		t.Fatal(groups, err)
	}
	for range 2 {
		figure("eight start-ups without switching", "%v", eightStarts(t).Round(time.Millisecond))
		var off, on, find []time.Duration
		timed := func(into *[]time.Duration, call func() error) {
			began := time.Now()
			if err := call(); err != nil {
				t.Error(err)
			}
			*into = append(*into, time.Since(began))
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				timed(&off, func() error { return m.Switch(ctx, groups, false) })
				timed(&on, func() error { return m.Switch(ctx, groups, true) })
				timed(&find, func() error { _, err := m.Find(ctx, p); return err })
			}
		}()
		took := eightStarts(t)
		close(stop)
		<-done
		figure("eight start-ups with switching", "%v", took.Round(time.Millisecond))
		figure("during them: off, the call", "%s", spread(off))
		figure("during them: on, the call", "%s", spread(on))
		figure("during them: find again", "%s", spread(find))
	}
}

// TestLiveTwoGPUs: a process with a context on each of two GPUs, off and on as one.
func TestLiveTwoGPUs(t *testing.T) {
	needGPU(t)
	if _, err := os.Stat("/dev/nvidia1"); err != nil {
		needtest.GPUs.Skipf(t, "needs two GPUs: %v", err)
	}
	m := rm.New(rm.System(), rm.Options{})
	ctx := t.Context()
	if err := m.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond)
	run, p := liveTenant(t, tenant.Spin, 2)
	groups, err := m.Find(ctx, p)
	if err != nil || len(groups) != 2 || groups[0].GPU == groups[1].GPU {
		t.Fatalf("groups on two GPUs: %+v, %v", groups, err)
	}
	var off, on []time.Duration
	for range 100 {
		began := time.Now()
		if err := m.Switch(ctx, groups, false); err != nil {
			t.Fatal(err)
		}
		off = append(off, time.Since(began))
		time.Sleep(5 * time.Millisecond)
		began = time.Now()
		if err := m.Switch(ctx, groups, true); err != nil {
			t.Fatal(err)
		}
		on = append(on, time.Since(began))
	}
	figure("two GPUs: off, the call", "%s", spread(off))
	figure("two GPUs: on, the call", "%s", spread(on))
	if err := run.Stop(ctx); err != nil {
		t.Error(err)
	}
}
