package rm_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

// findUntil asks again every 50 ms until a process has this many groups, and says how long
// that took since began.
func findUntil(t *testing.T, m *rm.Manager, p rm.Process, n int, began time.Time) time.Duration {
	t.Helper()
	for {
		groups, err := m.Find(t.Context(), p)
		if err != nil && !errors.Is(err, rm.ErrUnfinished) {
			t.Errorf("find %v: %v", p, err)
			return time.Since(began)
		}
		if len(groups) == n {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			t.Errorf("%v has groups %+v after a minute, want %d", p, groups, n)
			return time.Since(began)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// late starts n programs that are there and have not made a call yet.
func late(t *testing.T, n int) (runs []*tenant.Tenant, processes []rm.Process) {
	t.Helper()
	for range n {
		run, p := startLive(t, tenant.Options{Kind: tenant.Spin, Contexts: 1, Most: 2 * time.Minute, Late: true})
		runs, processes = append(runs, run), append(processes, p)
	}
	time.Sleep(100 * time.Millisecond)
	return runs, processes
}

func beginAll(t *testing.T, runs []*tenant.Tenant) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(func() {
			if err := run.Begin(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// findAll finds the groups of all at once, twice.
func findAll(t *testing.T, what string, m *rm.Manager, count *counter, processes []rm.Process) {
	t.Helper()
	for _, when := range []string{"first", "again"} {
		count.ioctls.Store(0)
		took := make([]time.Duration, len(processes))
		began := time.Now()
		var all sync.WaitGroup
		for i, p := range processes {
			all.Go(func() { took[i] = findUntil(t, m, p, 1, began) })
		}
		all.Wait()
		figure(what+", "+when, "%s, %d ioctls", spread(took), count.ioctls.Load())
	}
}

// TestLiveOldProcesses: programs that were there before us and made their contexts after, one
// and five at once, beside each other's start-ups.
func TestLiveOldProcesses(t *testing.T) {
	count := &counter{Kernel: needGPU(t)}
	for _, c := range []struct {
		name string
		n    int
	}{{"one old process, new context", 1}, {"five old processes, new contexts", 5}} {
		runs, processes := late(t, c.n)
		m := rm.New(count, rm.Options{})
		if err := m.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range processes { // as a daemon looks before there is anything
			if groups, err := m.Find(t.Context(), p); len(groups) > 0 || err != nil {
				t.Errorf("%v has groups %+v, %v", p, groups, err)
			}
		}
		beginAll(t, runs)
		findAll(t, c.name, m, count, processes)
		findAll(t, c.name+", after a restart", rm.New(count, rm.Options{}), count, processes)
		for _, run := range runs {
			run.Kill()
		}
	}
}

// TestLiveOldClients: after a restart, of processes whose clients are 20,000 handles old.
func TestLiveOldClients(t *testing.T) {
	count := &counter{Kernel: needGPU(t)}
	runs, processes := late(t, 5)
	beginAll(t, runs)
	others := rm.New(rm.System(), rm.Options{})
	began := time.Now()
	const older = 20_000
	for range older {
		if err := others.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	figure("a client of our own, made and closed", "%v", time.Since(began)/older)
	findAll(t, "five old processes, old clients", rm.New(count, rm.Options{}), count, processes)
	for _, run := range runs {
		run.Kill()
	}
}
