package rm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

var (
	recordTo = flag.String("record", "", "write the calls of the test on a real GPU to this file, as lines of JSON")
	cycles   = flag.Int("cycles", 100, "how often the test on a real GPU switches a kernel off and on")
)

// needGPU skips where there is no GPU of NVIDIA, or nothing to build the tenant with.
func needGPU(t *testing.T) rm.Kernel {
	t.Helper()
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		t.Skipf("needs a GPU of NVIDIA: %v", err)
	}
	return rm.System()
}

// table is what the tests print at the end.
var table []string

func figure(name, format string, args ...any) {
	table = append(table, fmt.Sprintf("%-44s %s", name, fmt.Sprintf(format, args...)))
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if len(table) > 0 {
		fmt.Println("\n" + strings.Join(table, "\n"))
	}
	os.Exit(code)
}

// counter counts the ioctls of a Kernel.
type counter struct {
	rm.Kernel
	ioctls atomic.Int64
}

func (c *counter) Ioctl(fd int, request uint32, arg, params []byte) error {
	c.ioctls.Add(1)
	return c.Kernel.Ioctl(fd, request, arg, params)
}

func liveTenant(t *testing.T, kind string, contexts int) (*tenant.Tenant, rm.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, err := tenant.Start(ctx, t.TempDir(), kind, contexts, 2*time.Minute)
	if errors.Is(err, cc.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Kill)
	stat, err := rm.System().Stat(run.PID())
	if err != nil {
		t.Fatal(err)
	}
	return run, rm.Process{PID: run.PID(), Start: stat.Start}
}

func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))].Round(time.Microsecond)
}

func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %v  p99 %v  max %v  (n=%d)", quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1), len(all))
}

// watch follows a tenant's counter until stop: last is when it last moved.
type watch struct {
	last atomic.Int64 // UnixNano
	stop chan struct{}
	done chan struct{}
}

func follow(run *tenant.Tenant) *watch {
	w := &watch{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for beat := run.Beat(); ; {
			select {
			case <-w.stop:
				return
			default:
			}
			if now := run.Beat(); now != beat {
				beat = now
				w.last.Store(time.Now().UnixNano())
			}
		}
	}()
	return w
}

func (w *watch) end() { close(w.stop); <-w.done }

func (w *watch) moved() time.Time { return time.Unix(0, w.last.Load()) }

// movedAfter waits until the counter moves after since, and says how long that took.
func (w *watch) movedAfter(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	for deadline := since.Add(5 * time.Second); ; {
		if at := w.moved(); at.After(since) {
			return at.Sub(since)
		}
		if time.Now().After(deadline) {
			t.Fatal("the counter does not move")
		}
	}
}

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

// used is the memory in use on the first GPU, in MiB.
func used(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

func TestLiveTwoProcessesAndKill(t *testing.T) {
	m := rm.New(needGPU(t), rm.Options{})
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
	m := rm.New(needGPU(t), rm.Options{})
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

func TestLiveOldProcess(t *testing.T) {
	count := &counter{Kernel: needGPU(t)}
	_, p := liveTenant(t, tenant.Spin, 1)
	m := rm.New(count, rm.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	groups, err := m.Find(ctx, p)
	figure("find an old process", "%v, %d ioctls, %d groups %v", time.Since(began).Round(time.Millisecond), count.ioctls.Load(), len(groups), err)
	if err != nil || len(groups) != 1 {
		t.Errorf("an old process has groups %+v, %v", groups, err)
	}
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
	for _, result := range tour(t, record, func() (rm.Process, func()) {
		time.Sleep(30 * time.Millisecond)
		run, p := liveTenant(t, tenant.Spin, 1)
		_, _ = record.Stat(p.PID)
		return p, run.Kill
	}) {
		t.Logf("%+v", result)
	}
	if err := record.Err(); err != nil {
		t.Fatal(err)
	}
}
