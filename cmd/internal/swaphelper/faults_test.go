package swaphelper_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
)

// slow makes every step long enough to be interrupted.
func slow() sim.Options {
	o := options()
	o.Checkpoint = sim.CheckpointCost{Lock: 300 * time.Millisecond, Checkpoint: 300 * time.Millisecond,
		Restore: 300 * time.Millisecond, Unlock: 300 * time.Millisecond}
	return o
}

// stepping waits until a step of the checkpoint API is under way on a process.
func (r *rig) stepping(ctx context.Context, pid int, step string) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.CheckpointStep(pid) != step {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// The helper is killed in the middle of each step: what it had asked the driver for goes
// on, and all is undone, or on record and brought back.
func TestHelperIsKilled(t *testing.T) {
	r := newRig(t, slow())
	c := r.run(t)
	for _, step := range []string{"lock", "checkpoint", "restore", "unlock"} {
		for tries := 1; !r.killHelper(t, c, step); tries++ { // a machine that stalls does not see each step
			if tries == 5 {
				t.Fatalf("%s: no helper was killed", step)
			}
		}
	}
	r.unharmed(t)
}

// killHelper suspends and resumes a container, and kills the helper in the middle of a step.
func (r *rig) killHelper(t *testing.T, c *simtest.Container, step string) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	killed := make(chan bool, 1)
	go func() {
		helper := 0
		if r.stepping(ctx, c.PID, step) {
			helper = r.swap.Helper.PID()
		}
		killed <- helper != 0 && syscall.Kill(helper, syscall.SIGKILL) == nil
	}()
	_, err := r.swap.Suspend(t.Context(), c.ID, c.Name, "test")
	if err != nil && !errors.Is(err, enforce.ErrUndone) && !errors.Is(err, enforce.ErrStuck) {
		t.Fatal(err)
	}
	for range 3 {
		if _, err = r.swap.Resume(t.Context(), c.ID, nil); err == nil || errors.Is(err, enforce.ErrForeign) {
			break
		}
	}
	cancel()
	was := <-killed
	if s := r.state(t, c.PID); s != sim.ProcessRunning {
		t.Fatalf("%s: state %d, %v", step, s, err)
	}
	c.Await(t, "kernels_end")
	return was
}

// A person pauses the container just before it is locked: the driver hangs, the way back
// does not, and the container is left to the person; it is whole after the unpause.
func TestPausedWhileItIsLocked(t *testing.T) {
	r := newRig(t, options())
	c := r.run(t)
	h := checkpoint.NewHelper(checkpoint.HelperOptions{Command: r.swapOptions().Helper})
	defer h.Close()
	_, err := h.Start(t.Context())
	check(t, err, nil)
	c.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = h.Lock(ctx, c.PID, 50*time.Millisecond)
	check(t, err, checkpoint.ErrHelper)
	if s, err := h.State(t.Context(), c.PID); s != checkpoint.Running || err != nil {
		t.Errorf("the next helper says %s, %v", s, err)
	}
	c.Unpause(t)
}

// The actuator is killed in the middle of a suspend, or after it: its guardian brings the
// container back.
func TestActuatorIsKilled(t *testing.T) {
	for name, step := range map[string]string{
		"while it locks": "lock", "while it checkpoints": "checkpoint", "afterwards": "",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, slow())
			c := r.run(t)
			for tries := 1; !r.killActuator(t, c, step); tries++ { // a machine that stalls does not see each step
				if tries == 5 {
					t.Fatal("no actuator was killed " + name)
				}
			}
			r.unharmed(t)
		})
	}
}

// killActuator has an actuator suspend a container, and kills it in the middle of a step. Without a step it dies
// by itself afterwards. The guardian brings the container back.
func (r *rig) killActuator(t *testing.T, c *simtest.Container, step string) bool {
	t.Helper()
	victim := r.victim(t, c.ID)
	ctx, ended := context.WithCancel(t.Context())
	go func() {
		defer ended()
		_ = victim.Wait() // it is killed
	}()
	was := step == ""
	if !was && r.stepping(ctx, c.PID, step) {
		was = victim.Process.Kill() == nil
	}
	<-ctx.Done()
	if len(recorded(t, r)) != 1 {
		t.Fatal("it is not on record")
	}
	guarding, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := undo.RunGuardian(guarding, undo.Options{StateDir: r.dir, Once: true,
		ContainerOf: r.swapOptions().ContainerOf, Logger: slog.New(slog.DiscardHandler)})
	check(t, err, nil)
	if s := r.state(t, c.PID); s != sim.ProcessRunning || r.frozen(t, c.ID) || len(recorded(t, r)) != 0 {
		t.Errorf("state %d, frozen %v, on record %v", s, r.frozen(t, c.ID), recorded(t, r))
	}
	c.Await(t, "kernels_end")
	return was
}

func recorded(t *testing.T, r *rig) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(checkpoint.Folder(r.dir), "*.json"))
	check(t, err, nil)
	return files
}

// Without room the guardian keeps what is in memory and tries again.
func TestGuardianWaitsForRoom(t *testing.T) {
	r := newRig(t, options())
	c := r.run(t)
	_, err := r.swap.Suspend(t.Context(), c.ID, c.Name, "test")
	check(t, err, nil)
	p := r.Attach(1)
	check(t, p.Open(t.Context(), 0), nil)
	free, _, err := p.Memory(0)
	check(t, err, nil)
	_, err = p.Alloc(0, free)
	check(t, err, nil)
	lines := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() {
		done <- undo.RunGuardian(context.Background(), undo.Options{StateDir: r.dir, Once: true,
			ContainerOf: r.swapOptions().ContainerOf, Logger: slog.New(logged{lines})})
	}()
	<-lines // that it cannot
	for range 100 {
		if s := r.state(t, c.PID); s != sim.ProcessCheckpointed || !r.frozen(t, c.ID) {
			t.Fatalf("state %d", s)
		}
	}
	p.Exit()
	check(t, <-done, nil)
	c.Await(t, "kernels_end")
	r.unharmed(t)
}

// logged reports errors that are logged.
type logged struct{ lines chan struct{} }

func (h logged) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (h logged) Handle(context.Context, slog.Record) error    { h.lines <- struct{}{}; return nil }
func (h logged) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h logged) WithGroup(string) slog.Handler                { return h }

// The card has room for the container and the reserve, and no more; the times are random.
func TestRandomTimes(t *testing.T) {
	cycles := 40
	if testing.Short() {
		cycles = 10
	}
	o := options()
	o.Cards[0].Memory = 400 * mib // a reserve of 256, and one container beside it
	r := newRig(t, o)
	c := r.run(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range cycles {
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
		_, err := r.swap.Suspend(t.Context(), c.ID, c.Name, "test")
		check(t, err, nil)
		_, err = r.swap.Resume(t.Context(), c.ID, nil)
		check(t, err, nil)
	}
	c.Await(t, "kernels_end")
	r.unharmed(t)
}
