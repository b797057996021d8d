package swaphelper_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/enforce/checkpoint/checkpointtest"
	"github.com/laxity/laxity/actuator/swapping"
	"github.com/laxity/laxity/cmd/internal/swaphelper"
	observed "github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/freezer"
	"github.com/laxity/laxity/internal/needtest"
)

// TestMain is the helper process too, and the actuator of TestActuatorIsKilled.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == swaphelper.Name {
		device, _ := strings.CutPrefix(os.Args[2], "--device=")
		if err := (swaphelper.Options{Device: device}).Run(); err != nil {
			panic(err)
		}
		return
	}
	if dir := os.Getenv("LAXITY_TEST_SUSPEND_DIR"); dir != "" {
		suspendAndDie(dir)
	}
	os.Exit(m.Run())
}

const mib = 1 << 20

// rig is a simulated GPU on which 512² tasks take as long as large ones do on a real one,
// and what swaps containers off it.
type rig struct {
	*simtest.Server
	docker *client.Client
	image  string
	dir    string
	swap   *swapping.Swap
}

func options() sim.Options {
	return sim.Options{ContextTime: -1, ListDelay: -1, ContextMemory: 100 * mib,
		Cards:      []sim.Card{{Memory: 1000 * mib, Speed: sim.H200().Scaled(512).Faster(20)}},
		Checkpoint: sim.CheckpointCost{Lock: time.Millisecond, Checkpoint: 10 * time.Millisecond, Restore: 10 * time.Millisecond}}
}

func newRig(t *testing.T, o sim.Options) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "reading other processes' memory limits needs root")
	}
	r := &rig{Server: simtest.Start(t, o), docker: simtest.Docker(t)}
	r.image = simtest.Image(t, r.docker)
	r.dir = t.TempDir()
	r.swap = r.open(t)
	return r
}

func (r *rig) swapOptions() swapping.Options {
	self, _ := os.Executable()
	return swapping.Options{StateDir: r.dir, Helper: []string{self, swaphelper.Name, "--device=sim:" + r.Socket},
		ContainerOf: observed.Proc("/proc").OfPID, NoticeDir: filepath.Join(r.dir, "swapped")}
}

func (r *rig) open(t *testing.T) *swapping.Swap {
	t.Helper()
	s, err := swapping.Open(r.swapOptions())
	check(t, err, nil)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Helper.Start(t.Context()) // it may take longer than an answer
	check(t, err, nil)
	return s
}

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || (err != nil) != (want != nil) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// run starts a container that multiplies matrices for ever.
func (r *rig) run(t *testing.T) *simtest.Container {
	t.Helper()
	c := r.StartContainer(t, r.docker, simtest.Spec{Image: r.image, Args: []string{"--n", "512", "--repeat", "0"}})
	c.Await(t, "launch")
	return c
}

func (r *rig) frozen(t *testing.T, id string) bool {
	t.Helper()
	c, err := r.docker.ContainerInspect(t.Context(), id)
	check(t, err, nil)
	frozen, err := freezer.Kernel{Proc: "/proc"}.Frozen(c.State.Pid)
	check(t, err, nil)
	return frozen
}

func (r *rig) holds(t *testing.T, pid int) uint64 {
	t.Helper()
	reading, err := r.Device().Read(t.Context())
	check(t, err, nil)
	for _, p := range reading.GPUs[0].Processes {
		if p.PID == pid {
			return p.MemoryUsed
		}
	}
	return 0
}

func (r *rig) state(t *testing.T, pid int) sim.CheckpointState {
	t.Helper()
	s, err := r.CheckpointState(pid)
	check(t, err, nil)
	return s
}

func (r *rig) unharmed(t *testing.T) {
	t.Helper()
	if c := r.Casualties(); c != (sim.Casualties{}) {
		t.Errorf("processes were lost: %+v", c)
	}
}

func TestConformance(t *testing.T) {
	checkpointtest.Run(t, func(t *testing.T) checkpointtest.Subject {
		r := newRig(t, options())
		t.Cleanup(func() { r.unharmed(t) })
		containers := map[string]*simtest.Container{}
		return checkpointtest.Subject{
			Swapper: r.swap,
			Run: func(t *testing.T) string {
				c := r.run(t)
				containers[c.ID] = c
				return c.ID
			},
			Computes: func(t *testing.T, id string) {
				containers[id].Await(t, "kernels_end")
				containers[id].Await(t, "launch")
			},
			Holds:  func(t *testing.T, id string) uint64 { return r.holds(t, containers[id].PID) },
			Frozen: r.frozen,
			SetPaused: func(t *testing.T, id string, paused bool) {
				if paused {
					containers[id].Pause(t)
				} else {
					containers[id].Unpause(t)
				}
			},
			Remove: func(t *testing.T, id string) {
				check(t, r.docker.ContainerRemove(t.Context(), id, container.RemoveOptions{Force: true}), nil)
			},
			Fill: func(t *testing.T) func() {
				p := r.Attach(os.Getpid())
				check(t, p.Open(t.Context(), 0), nil)
				free, _, err := p.Memory(0)
				check(t, err, nil)
				_, err = p.Alloc(0, free)
				check(t, err, nil)
				return p.Exit
			},
		}
	})
}

// suspendAndDie is an actuator that is killed while, or after, it suspends.
func suspendAndDie(dir string) {
	r := &rig{dir: dir, Server: &simtest.Server{Socket: os.Getenv("LAXITY_TEST_SOCKET")}}
	s, err := swapping.Open(r.swapOptions())
	if err == nil {
		_, err = s.Helper.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	_, err = s.Suspend(context.Background(), os.Getenv("LAXITY_TEST_CONTAINER"), "name", "test")
	if err != nil {
		panic(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// victim starts suspendAndDie in a process of its own.
func (r *rig) victim(t *testing.T, id string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	check(t, err, nil)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "LAXITY_TEST_SUSPEND_DIR="+r.dir, "LAXITY_TEST_CONTAINER="+id, "LAXITY_TEST_SOCKET="+r.Socket)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start(), nil)
	return cmd
}

func TestOpen(t *testing.T) {
	r := newRig(t, options())
	o := swaphelper.OpenOptions{StateDir: t.TempDir(), LockDir: t.TempDir(), Device: "sim:" + r.Socket, Logger: slog.New(slog.DiscardHandler)}
	s, err := o.Open()
	check(t, err, nil)
	if s == nil {
		t.Fatal("the simulated GPU can be swapped")
	}
	o.Device = "sim:/nonexistent"
	if s, err = o.Open(); s != nil || err != nil {
		t.Errorf("without a GPU: %v, %v", s, err)
	}
	c := r.run(t)
	_, err = r.swap.Suspend(t.Context(), c.ID, c.Name, "test")
	check(t, err, nil)
	o.StateDir = r.dir
	if s, err = o.Open(); s == nil || err != nil {
		t.Errorf("without a GPU, while a container is swapped out: %v, %v", s, err)
	}
	_, err = r.swap.Resume(t.Context(), c.ID, nil)
	check(t, err, nil)
}
