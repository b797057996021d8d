package sim_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/needtest"
)

const gib = 1 << 30

func fastCheckpoint() sim.Options {
	return sim.Options{ContextTime: -1, ListDelay: -1, ContextMemory: gib,
		Cards:      []sim.Card{{Memory: 10 * gib}},
		Checkpoint: sim.CheckpointCost{Lock: -1, Checkpoint: -1, Restore: -1, Unlock: -1, CheckpointRate: 1e13, RestoreRate: 1e13}}
}

// holder is a process with a context and some memory on the first card.
func holder(t *testing.T, g *sim.GPU, pid int, bytes uint64) *sim.Process {
	t.Helper()
	p := g.Attach(pid)
	t.Cleanup(p.Exit)
	if err := p.Open(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Alloc(0, bytes); err != nil {
		t.Fatal(err)
	}
	return p
}

func used(t *testing.T, g *sim.GPU) (bytes uint64, processes int) {
	t.Helper()
	r, err := g.Device().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.GPUs[0].MemoryUsed, len(r.GPUs[0].Processes)
}

func want(t *testing.T, err, is error) {
	t.Helper()
	if !errors.Is(err, is) || (err != nil) != (is != nil) {
		t.Fatalf("error %v, want %v", err, is)
	}
}

func TestCheckpointFreesAndRestores(t *testing.T) {
	g, err := sim.New(fastCheckpoint())
	want(t, err, nil)
	p := holder(t, g, 1, 3*gib)
	ctx := t.Context()
	want(t, g.Checkpoint(ctx, 1), sim.ErrState)
	want(t, g.Lock(ctx, 2, 0), sim.ErrNoProcess)
	want(t, g.Lock(ctx, 1, 0), nil)
	launched := make(chan error, 1)
	go func() { _, err := p.LaunchFor(0, time.Microsecond); launched <- err }()
	want(t, g.Checkpoint(ctx, 1), nil)
	if b, n := used(t, g); b != 0 || n != 0 {
		t.Errorf("%d bytes, %d processes are left", b, n)
	}
	want(t, g.Unlock(ctx, 1), sim.ErrState)
	want(t, g.Restore(ctx, 1), nil)
	select {
	case <-launched:
		t.Fatal("a locked process launched a kernel")
	default:
	}
	want(t, g.Unlock(ctx, 1), nil)
	want(t, <-launched, nil)
	if b, n := used(t, g); b != 4*gib || n != 1 {
		t.Errorf("%d bytes, %d processes", b, n)
	}
	if c := g.Casualties(); c != (sim.Casualties{}) {
		t.Errorf("%+v", c)
	}
}

func TestLockWaitsForKernels(t *testing.T) {
	g, err := sim.New(fastCheckpoint())
	want(t, err, nil)
	p := holder(t, g, 1, gib)
	_, err = p.LaunchFor(0, time.Hour)
	want(t, err, nil)
	want(t, g.Lock(t.Context(), 1, 5*time.Millisecond), sim.ErrNotReady)
	if s, err := g.CheckpointState(1); s != sim.ProcessRunning || err != nil {
		t.Errorf("state %v %v", s, err)
	}
	_, err = p.LaunchFor(0, 0) // it goes on
	want(t, err, nil)
}

func TestRestoreWithoutRoomLosesTheProcess(t *testing.T) {
	g, err := sim.New(fastCheckpoint())
	want(t, err, nil)
	p := holder(t, g, 1, 5*gib)
	want(t, g.Lock(t.Context(), 1, 0), nil)
	want(t, g.Checkpoint(t.Context(), 1), nil)
	holder(t, g, 2, 6*gib)
	want(t, g.Restore(t.Context(), 1), sim.ErrOutOfMemory)
	_, err = p.LaunchFor(0, 0)
	want(t, err, sim.ErrLost)
	if c := g.Casualties(); c.NoRoom != 1 {
		t.Errorf("%+v", c)
	}
}

func TestEndInTheMiddleOfARestoreIsCounted(t *testing.T) {
	o := fastCheckpoint()
	o.Checkpoint.Restore = time.Hour
	g, err := sim.New(o)
	want(t, err, nil)
	p := holder(t, g, 1, gib)
	want(t, g.Lock(t.Context(), 1, 0), nil)
	want(t, g.Checkpoint(t.Context(), 1), nil)
	done := make(chan error, 1)
	go func() { done <- g.Restore(context.Background(), 1) }()
	for _, n := used(t, g); n == 0; _, n = used(t, g) { // it has begun
		time.Sleep(time.Millisecond)
	}
	p.Exit()
	want(t, <-done, sim.ErrExited)
	if c := g.Casualties(); c.Killed != 1 {
		t.Errorf("%+v", c)
	}
}

// A process that cannot run hangs its lock, whatever the limit.
func TestLockOfAStoppedProcessHangs(t *testing.T) {
	o := fastCheckpoint()
	o.Cards[0].Speed = sim.H200().Scaled(512)
	s := simtest.Start(t, o)
	// A lock waits for what is queued: one kernel.
	p := s.StartProcess(t, "--n", "512", "--kernels", "100000", "--sync-each")
	p.Await(t, "launch")
	want(t, syscall.Kill(p.PID, syscall.SIGSTOP), nil)
	want(t, unix.Waitid(unix.P_PID, p.PID, nil, unix.WSTOPPED|unix.WNOWAIT, nil), nil) // the signal has arrived
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	want(t, s.Lock(ctx, p.PID, 10*time.Millisecond), context.DeadlineExceeded)
	locked := make(chan error, 1)
	go func() { locked <- s.Lock(t.Context(), p.PID, 0) }()
	want(t, syscall.Kill(p.PID, syscall.SIGCONT), nil)
	want(t, <-locked, nil)
}

func TestAProcessWithoutCUDAIsNone(t *testing.T) {
	s := simtest.Start(t, fastCheckpoint())
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		needtest.Compiler.Skip(t, err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, err := s.CheckpointState(cmd.Process.Pid)
	want(t, err, sim.ErrNoProcess)
	_, err = s.CheckpointState(os.Getpid())
	want(t, err, sim.ErrNoProcess)
}
