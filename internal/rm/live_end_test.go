package rm_test

import (
	"errors"
	"flag"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

var ends = flag.Int("ends", 3, "how often the test on a real GPU ends a process in each way while it is off")

// TestLiveEndsWhileOff: a process that ends while its channels are off is gone at once, or
// when they are on again, and so is its memory.
func TestLiveEndsWhileOff(t *testing.T) {
	m := rm.New(&counter{Kernel: needGPU(t)}, rm.Options{})
	ctx := t.Context()
	before := used(t)
	for _, way := range []struct {
		name   string
		signal syscall.Signal
		atOnce bool
	}{{"SIGKILL", syscall.SIGKILL, false}, {"SIGTERM", syscall.SIGTERM, false}, {"_exit()", 0, true}, {"exit()", 0, false}} {
		var gone, free []time.Duration
		hung := 0
		for range *ends {
			if err := m.Mark(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Millisecond)
			run, p := liveTenant(t, tenant.Spin, 1)
			groups, err := m.Find(ctx, p)
			if err != nil || len(groups) != 1 {
				t.Errorf("%s: groups %+v, %v", way.name, groups, err)
				run.Kill()
				continue
			}
			if err := m.Switch(ctx, groups, false); err != nil {
				t.Errorf("%s: %v", way.name, err)
			}
			began := time.Now()
			if err := run.End(way.signal, way.atOnce); err != nil {
				t.Error(err)
			}
			select {
			case <-run.Exited():
			case <-time.After(3 * time.Second):
				hung++
				if err := m.Switch(ctx, groups, true); err != nil && !errors.Is(err, rm.ErrGone) {
					t.Errorf("%s: %v", way.name, err)
				}
				select {
				case <-run.Exited():
				case <-time.After(10 * time.Second):
					t.Errorf("%s: it did not end after it was on again", way.name)
					run.Kill()
				}
			}
			gone = append(gone, time.Since(began))
			for used(t) != before && time.Since(began) < 20*time.Second {
				time.Sleep(10 * time.Millisecond)
			}
			free = append(free, time.Since(began))
		}
		if len(gone) > 0 {
			figure(fmt.Sprintf("%s while off: the process is gone", way.name), "%s; %d hung until it was on again", spread(gone), hung)
			figure("its memory is free, as nvidia-smi says", "%s", spread(free))
		}
	}
	if after := used(t); after != before {
		t.Errorf("memory in use: %s MiB before, %s after", before, after)
	}
}
