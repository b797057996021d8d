package sim_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
)

const mib = 1 << 20

func newGPU(t *testing.T, opts sim.Options) *sim.GPU {
	t.Helper()
	gpu, err := sim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return gpu
}

func readOne(t *testing.T, gpu *sim.GPU) device.GPU {
	t.Helper()
	r, err := gpu.Device().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.GPUs[0]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	for name, opts := range map[string]sim.Options{
		"no speed":    {Cards: []sim.Card{{Speed: sim.Speed{Flops: 1}}}},
		"same UUID":   {Cards: []sim.Card{{UUID: "GPU-1"}, {UUID: "GPU-1"}}},
		"large share": {Cards: []sim.Card{{Instances: []sim.Instance{{Share: 2}}}}},
		"lag":         {RiseLag: time.Millisecond},
	} {
		if _, err := sim.New(opts); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

// Contexts made at once take turns with the driver, if so chosen; a process that
// stops asking (it is frozen) keeps nobody.
func TestContextsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := newGPU(t, sim.Options{ContextTime: 200 * time.Millisecond, ContextShared: 150 * time.Millisecond, Cards: make([]sim.Card, 2)})
		open := func(pid, card int) time.Duration {
			begun := time.Now()
			must(t, gpu.Attach(pid).Open(t.Context(), card))
			return time.Since(begun)
		}
		if took := open(1, 0); took != 200*time.Millisecond {
			t.Errorf("alone: %v", took)
		}
		if took := open(1, 0); took != 0 {
			t.Errorf("again: %v", took)
		}
		took := make(chan time.Duration, 8)
		for i := range cap(took) {
			go func() { took <- open(10+i, i%2) }()
		}
		for range cap(took) {
			if d := <-took; d < 1100*time.Millisecond || d > 1200*time.Millisecond {
				t.Errorf("one of 8 at once: %v, want about 8 × 150 ms", d)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := gpu.Attach(30).Open(ctx, 0); err == nil {
			t.Error("opened though it gave up")
		}
		if took := open(31, 0); took != 200*time.Millisecond {
			t.Errorf("after one that gave up: %v", took)
		}
	})
	if _, err := sim.New(sim.Options{ContextTime: time.Second, ContextShared: 2 * time.Second}); err == nil {
		t.Error("more is shared than there is")
	}
}

// Eight tasks of two kernels at once need about 32 s on the H200 by time slicing,
// where the kernels alone add up to 25.8 s; one alone takes 5 s.
func TestTasksAtOnceTakeAsLongAsMeasured(t *testing.T) {
	const n = 16384
	task := func(gpu *sim.GPU, pid int) error {
		p := gpu.Attach(pid)
		defer p.Detach()
		bytes, flops := uint64(n*n*4), 2.0*n*n*n
		time.Sleep(200 * time.Millisecond) // start-up of the process
		steps := []func() error{
			func() error { return p.Open(context.Background(), 0) },
			func() error { time.Sleep(550 * time.Millisecond); return nil },
			func() error { return p.Copy(context.Background(), 0, sim.In, 2*bytes) },
			func() error { _, err := p.Launch(0, flops); return err },
			func() error { _, err := p.Launch(0, flops); return err },
			func() error { return p.Sync(context.Background(), 0, 0) },
			func() error { return p.Copy(context.Background(), 0, sim.Out, bytes) },
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, tt := range []struct {
		tasks       int
		least, most time.Duration
	}{{1, 4800 * time.Millisecond, 5100 * time.Millisecond}, {8, 31 * time.Second, 33 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			gpu := newGPU(t, sim.Options{})
			begin := time.Now()
			errs := make(chan error)
			for i := range tt.tasks {
				go func() { errs <- task(gpu, 100+i) }()
			}
			for range tt.tasks {
				must(t, <-errs)
			}
			if took := time.Since(begin); took < tt.least || took > tt.most {
				t.Errorf("%d tasks took %v, want %v to %v", tt.tasks, took, tt.least, tt.most)
			}
		})
	}
}

func TestProcessIsListedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := newGPU(t, sim.Options{})
		p := gpu.Attach(42)
		begin := time.Now()
		opened := make(chan error)
		go func() { opened <- p.Open(context.Background(), 0) }()
		time.Sleep(149 * time.Millisecond)
		if g := readOne(t, gpu); len(g.Processes) != 0 || g.MemoryUsed != 566*mib {
			t.Errorf("not listed, but its memory is in use: %+v", g)
		}
		time.Sleep(2 * time.Millisecond)
		g := readOne(t, gpu)
		if len(g.Processes) != 1 || g.Processes[0].PID != 42 || g.Processes[0].MemoryUsed != 566*mib || g.MemoryUsed != 566*mib {
			t.Errorf("want process 42 with its context's 566 MiB, got %+v", g)
		}
		must(t, <-opened)
		if took := time.Since(begin); took != 200*time.Millisecond {
			t.Errorf("the context took %v, want 200 ms", took)
		}
	})
}

// An allocation that takes time is in use at once, and its process's when it returns;
// memory of a process that has ended is nobody's until it is free.
func TestMemoryTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := newGPU(t, sim.Options{ListDelay: -1, ContextTime: -1, ContextMemory: mib, AllocRate: 1000 * mib, ReleaseTime: 100 * time.Millisecond})
		p := gpu.Attach(42)
		must(t, p.Open(t.Context(), 0))
		go func() {
			if _, err := p.Alloc(0, 500*mib); err != nil {
				t.Error(err)
			}
		}()
		for _, at := range []struct {
			sleep           time.Duration
			then            func()
			used, processes uint64 // MiB
		}{
			{499 * time.Millisecond, func() {}, 501, 1},
			{2 * time.Millisecond, p.Exit, 501, 501},
			{99 * time.Millisecond, func() {}, 501, 0},
			{2 * time.Millisecond, func() {}, 0, 0},
		} {
			time.Sleep(at.sleep)
			g := readOne(t, gpu)
			var held uint64
			for _, p := range g.Processes {
				held += p.MemoryUsed
			}
			if g.MemoryUsed != at.used*mib || held != at.processes*mib {
				t.Errorf("%+v; want %d MiB used, of those processes %d", g, at.used, at.processes)
			}
			at.then()
		}
	})
}

func TestKernelOutlivesItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := newGPU(t, sim.Options{ListDelay: -1, ContextTime: -1})
		p := gpu.Attach(42)
		must(t, p.Open(t.Context(), 0))
		for range 3 {
			if _, err := p.LaunchFor(0, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond) // in the second kernel
		p.Exit()
		if err := p.Sync(t.Context(), 0, 0); err == nil {
			t.Error("a process that has ended can do nothing")
		}
		time.Sleep(499 * time.Millisecond)
		if g := readOne(t, gpu); len(g.Processes) != 1 {
			t.Error("its kernel is in flight: it must still be listed")
		}
		time.Sleep(2 * time.Millisecond)
		if g := readOne(t, gpu); len(g.Processes) != 0 || g.MemoryUsed != 0 {
			t.Errorf("its kernel in flight has ended, and the queued one is dropped: %+v", g)
		}
	})
}

func TestMemory(t *testing.T) {
	gpu := newGPU(t, sim.Options{ContextTime: -1, ListDelay: -1, Cards: []sim.Card{{Memory: 2000 * mib}}})
	p := gpu.Attach(1)
	if _, err := p.Alloc(0, mib); !errors.Is(err, sim.ErrNoContext) {
		t.Errorf("without a context: %v", err)
	}
	must(t, p.Open(t.Context(), 0))
	a, err := p.Alloc(0, 1000*mib)
	must(t, err)
	if _, err := p.Alloc(0, 435*mib); !errors.Is(err, sim.ErrOutOfMemory) {
		t.Errorf("more than is free: %v", err)
	}
	if err := gpu.Attach(2).Open(t.Context(), 0); !errors.Is(err, sim.ErrOutOfMemory) {
		t.Errorf("no room for a context: %v", err)
	}
	if free, total, err := p.Memory(0); err != nil || free != 434*mib || total != 2000*mib {
		t.Errorf("free %d of %d: %v", free, total, err)
	}
	must(t, p.Free(0, a))
	if err := p.Free(0, a); !errors.Is(err, sim.ErrInvalid) {
		t.Errorf("freed twice: %v", err)
	}
	if got := readOne(t, gpu).MemoryUsed; got != 566*mib {
		t.Errorf("used %d, want the context's", got)
	}
	if err := p.Open(t.Context(), 1); !errors.Is(err, sim.ErrNoDevice) {
		t.Errorf("no such GPU: %v", err)
	}
	must(t, p.Close(0))
	if got := readOne(t, gpu); got.MemoryUsed != 0 || len(got.Processes) != 0 {
		t.Errorf("context destroyed: %+v", got)
	}
}

func TestUtilizationOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := newGPU(t, sim.Options{ListDelay: -1, ContextTime: -1})
		for pid := 1; pid <= 2; pid++ {
			p := gpu.Attach(pid)
			must(t, p.Open(t.Context(), 0))
			if _, err := p.LaunchFor(0, 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		g := readOne(t, gpu)
		if g.Utilization != 1 {
			t.Errorf("utilisation %v, want 1", g.Utilization)
		}
		for _, p := range g.Processes {
			if math.Abs(p.SMUtilization-0.5) > 1e-9 {
				t.Errorf("process %d: %v, want 0.5", p.PID, p.SMUtilization)
			}
		}
	})
}

func TestLostGPUFailsItsTenants(t *testing.T) {
	gpu := newGPU(t, sim.Options{ContextTime: -1, Cards: make([]sim.Card, 2)})
	p := gpu.Attach(1)
	for i := range 2 {
		must(t, p.Open(t.Context(), i))
		if _, err := p.LaunchFor(i, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	waiting := make(chan error)
	go func() { waiting <- p.Sync(context.Background(), 0, 0) }()
	must(t, gpu.Lose(gpu.UUIDs()[0]))
	if err := <-waiting; err == nil {
		t.Error("Sync on a lost GPU must fail")
	}
	if _, err := p.Alloc(0, 1); !errors.Is(err, sim.ErrLost) {
		t.Errorf("lost GPU: %v", err)
	}
	if ended, err := p.Query(1, 0); err != nil || ended {
		t.Errorf("the other GPU goes on: %v, %v", ended, err)
	}
	must(t, gpu.Recover(gpu.UUIDs()[0]))
	if _, err := p.Alloc(0, 1); !errors.Is(err, sim.ErrNoContext) {
		t.Errorf("its context is gone: %v", err)
	}
	if err := gpu.Lose("GPU-nobody"); !errors.Is(err, sim.ErrNoDevice) {
		t.Errorf("unknown UUID: %v", err)
	}
}

func TestHungRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := newGPU(t, sim.Options{})
		release := gpu.HangReads()
		done := make(chan error)
		go func() {
			_, err := gpu.Device().Read(context.Background())
			done <- err
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-done:
			t.Fatalf("Read came back: %v", err)
		default:
		}
		release()
		release() // again does nothing
		must(t, <-done)
	})
}
