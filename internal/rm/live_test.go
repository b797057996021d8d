package rm_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

func TestLiveSwitch(t *testing.T) {
	kernel := needGPU(t)
	count := &counter{Kernel: kernel}
	m := rm.New(count, rm.Options{})
	version, err := kernel.Driver()
	if err != nil {
		t.Fatal(err)
	}
	figure("driver", "%s, known: %v", version, m.Supported() == nil)
	ctx := t.Context()
	if err := m.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	for range 3 { // a process whose start is in the tick of the mark is taken for older
		time.Sleep(10 * time.Millisecond)
	}
	run, p := liveTenant(t, tenant.Spin, 1)

	var groups []rm.Group
	var took []time.Duration
	for i := range 11 {
		count.ioctls.Store(0)
		began := time.Now()
		if groups, err = m.Find(ctx, p); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
		if i == 0 {
			figure("find a new process", "%v, %d ioctls", took[0].Round(time.Microsecond), count.ioctls.Load())
		}
	}
	figure("find it again", "%s, %d ioctls", spread(took[1:]), count.ioctls.Load())
	if len(groups) != 1 {
		t.Fatalf("a process with one context has groups %+v", groups)
	}
	g := groups[0]
	figure("group", "%v class %#x fd %d subdevice %#x, %d channels, %s", g, g.Class, g.FD, g.Subdevice, len(g.Channels), g.GPU)

	began := time.Now()
	slice, err := m.Slice(ctx, g)
	figure("slice: libcuda's own", "%v %v, took %v", slice, err, time.Since(began).Round(time.Microsecond))
	for _, want := range []time.Duration{time.Millisecond, 10 * time.Millisecond, slice} {
		began := time.Now()
		if err := m.SetSlice(ctx, g, want); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		got, err := m.Slice(ctx, g)
		if err != nil || got != want {
			t.Errorf("set %v, read %v %v", want, got, err)
		}
		figure("slice: set and read back", "%v, took %v", got, took.Round(time.Microsecond))
	}

	states, err := m.State(ctx, g)
	figure("state while on", "%+v %v", states, err)
	w := follow(run)
	defer w.end()
	var off, offCall, on, onCall []time.Duration
	for i := range *cycles {
		began := time.Now()
		if err := m.Switch(ctx, groups, false); err != nil {
			t.Fatal(err)
		}
		offCall = append(offCall, time.Since(began))
		returned := time.Now()
		for time.Since(returned) < 5*time.Millisecond {
		}
		stood := run.Beat()
		off = append(off, max(0, w.moved().Sub(began)))
		for time.Since(returned) < 20*time.Millisecond {
		}
		if now := run.Beat(); now != stood {
			t.Errorf("cycle %d: the counter moved from %d to %d while off", i, stood, now)
		}
		if i == 0 {
			states, err := m.State(ctx, g)
			figure("state while off", "%+v %v", states, err)
		}
		began = time.Now()
		if err := m.Switch(ctx, groups, true); err != nil {
			t.Fatal(err)
		}
		onCall = append(onCall, time.Since(began))
		on = append(on, w.movedAfter(t, began))
		for time.Since(began) < 10*time.Millisecond {
		}
	}
	figure("off: last beat after the call began", "%s", spread(off))
	figure("off: the call", "%s", spread(offCall))
	figure("on: first beat after the call began", "%s", spread(on))
	figure("on: the call", "%s", spread(onCall))
	if err := run.Stop(ctx); err != nil {
		t.Errorf("after %d cycles: %v", *cycles, err)
	} else {
		figure("result after the cycles", "right")
	}
	if _, err := m.Find(ctx, p); !errors.Is(err, rm.ErrGone) {
		t.Errorf("a process that ended is found: %v", err)
	}
}

func TestLiveTwoProcessesAndKill(t *testing.T) {
	m := rm.New(&counter{Kernel: needGPU(t)}, rm.Options{})
	ctx := t.Context()
	if err := m.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond)
	before := used(t)
	a, pa := liveTenant(t, tenant.Spin, 2)
	b, pb := liveTenant(t, tenant.Steps, 1)
	ga, err := m.Find(ctx, pa)
	if err != nil {
		t.Fatal(err)
	}
	gb, err := m.Find(ctx, pb)
	if err != nil {
		t.Fatal(err)
	}
	figure("two contexts in one process", "%d groups", len(ga))
	if len(ga) != 2 || len(gb) != 1 {
		t.Errorf("groups: %+v and %+v, want 2 and 1", ga, gb)
	}
	if err := m.Switch(ctx, ga, false); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	stood, began := a.Beat(), b.Beat()
	time.Sleep(200 * time.Millisecond)
	figure("200 ms with one of two off", "it beat %d times, the other %d", a.Beat()-stood, b.Beat()-began)
	if a.Beat() != stood || b.Beat() == began {
		t.Error("off did not stop that one, or stopped the other too")
	}
	during := used(t)
	kill := time.Now()
	a.Kill()
	gone := time.Since(kill)
	if _, err := m.Find(ctx, pa); !errors.Is(err, rm.ErrGone) {
		t.Errorf("a killed process is found: %v", err)
	}
	if err := m.Switch(ctx, ga, true); !errors.Is(err, rm.ErrGone) {
		t.Errorf("a killed process is switched: %v", err)
	}
	if err := b.Stop(ctx); err != nil {
		t.Errorf("the other: %v", err)
	}
	figure("killed while off", "gone after %v; memory %s MiB before, %s during, %s after", gone.Round(time.Millisecond), before, during, used(t))
}

func TestLiveFindNew(t *testing.T) {
	m := rm.New(&counter{Kernel: needGPU(t)}, rm.Options{})
	ctx := t.Context()
	var took []time.Duration
	for range 10 {
		if err := m.Mark(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Millisecond)
		run, p := liveTenant(t, tenant.Spin, 1)
		began := time.Now()
		groups, err := m.Find(ctx, p)
		took = append(took, time.Since(began))
		if err != nil || len(groups) != 1 {
			t.Errorf("a new process has groups %+v, %v", groups, err)
		}
		run.Kill()
	}
	figure("find new processes", "%s", spread(took))
}

// TestLiveRecord writes the transcript that the tests elsewhere replay.
func TestLiveRecord(t *testing.T) {
	kernel := needGPU(t)
	if *recordTo == "" {
		t.Skip("needs -record FILE")
	}
	f, err := os.Create(*recordTo)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	record := rm.NewRecorder(kernel, f)
	results := tour(t, record, true, func() (rm.Process, func()) {
		time.Sleep(30 * time.Millisecond)
		run, p := liveTenant(t, tenant.Spin, 1)
		_, _ = record.Stat(p.PID)
		return p, run.Kill
	})
	fmt.Print(lines(results))
	if err := record.Err(); err != nil {
		t.Fatal(err)
	}
}
