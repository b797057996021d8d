package swap

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/swapping"
	"github.com/laxity/laxity/bench"
	benchrig "github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
)

// rig is a GPU, containers on it, and what swaps them.
type rig struct {
	*benchrig.Rig
	env  bench.Env
	swap *swapping.Swap
	made int
}

func newRig(ctx context.Context, env bench.Env, name string) (_ *rig, err error) {
	opened, err := benchrig.Open(ctx, env, name, 1)
	if err != nil {
		return nil, err
	}
	r := &rig{Rig: opened, env: env}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	r.swap, err = swapping.Open(swapping.Options{
		StateDir: filepath.Join(r.Dir, "state"), Helper: []string{self, "checkpoint-helper", "--device=" + r.GPU.Device},
		ContainerOf: container.Proc("/proc").OfPID,
	})
	if err != nil {
		return r, err
	}
	return r, checkpoint.Check(ctx, r.swap.Helper)
}

func (r *rig) close() (err error) {
	if r.swap != nil {
		err = r.swap.Close()
	}
	return errors.Join(err, r.Close())
}

// library is the driver's, for whoever calls it directly.
func (r *rig) library() (string, error) {
	if !r.GPU.Simulated() {
		return "", nil
	}
	if err := os.Setenv(cuda.EnvSocket, r.GPU.Socket); err != nil {
		return "", err
	}
	dir, err := cuda.Build("")
	return filepath.Join(dir, "libcuda.so.1"), err
}

// start starts a container and returns it with its process, once that holds at least so
// many bytes of GPU memory.
func (r *rig) start(ctx context.Context, name string, bytes uint64, args ...string) (*tenant.Tenant, int, uint64, error) {
	r.made++
	c, err := r.Tenants.Start(ctx, tenant.Spec{Name: r.name(name), Args: args})
	if err != nil {
		return nil, 0, 0, err
	}
	return r.await(ctx, c, bytes)
}

func (r *rig) name(what string) string {
	return fmt.Sprintf("laxity-bench-%s-%d-%d", what, os.Getpid(), r.made)
}

//go:embed torch.py
var torchProgram []byte

// startTorch starts PyTorch instead, from this machine's own python3.
func (r *rig) startTorch(ctx context.Context, bytes uint64) (*tenant.Tenant, int, uint64, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, 0, 0, fmt.Errorf("python3 with PyTorch is needed: %w", err)
	}
	script := filepath.Join(r.Dir, "torch_program.py")
	if err := os.WriteFile(script, torchProgram, 0o644); err != nil { //nolint:gosec // a container reads it
		return nil, 0, 0, err
	}
	r.made++
	c, err := r.Tenants.StartHost(ctx, tenant.Spec{Name: r.name("torch"), Args: []string{python, script}}, r.Dir)
	if err != nil {
		return nil, 0, 0, err
	}
	return r.await(ctx, c, bytes)
}

// await waits until a process of the container holds at least so many bytes.
func (r *rig) await(ctx context.Context, c *tenant.Tenant, bytes uint64) (*tenant.Tenant, int, uint64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // it may end before it holds anything
		err := c.Wait(ctx)
		cancel(cmp.Or(err, fmt.Errorf("container %s has ended", c.Name)))
	}()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		gpus, err := r.swap.Helper.GPUs(ctx)
		if err != nil {
			return nil, 0, 0, err
		}
		for pid, held := range gpus[0].Processes {
			if id, ok, err := container.Proc("/proc").OfPID(pid); err == nil && ok && id == c.ID && held >= bytes {
				return c, pid, held, nil
			}
		}
		if enforce.Sleep(ctx, 20*time.Millisecond) != nil {
			return nil, 0, 0, context.Cause(ctx)
		}
	}
	return nil, 0, 0, fmt.Errorf("container %s does not hold %d MiB of GPU memory after a minute", c.Name, bytes>>20)
}

// results says what the workload found: how often it verified its result, how often it was
// wrong, and how many different results there were.
func results(ctx context.Context, c *tenant.Tenant) (verified, wrong, different int, err error) {
	events, err := c.Timeline(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	sums := map[string]bool{}
	for _, e := range events {
		switch e.Name {
		case "wrong":
			wrong++
		case "verified":
			var v struct{ Checksum string }
			if err := json.Unmarshal([]byte(e.Text), &v); err != nil {
				return verified, wrong, len(sums), err
			}
			verified++
			sums[v.Checksum] = true
		}
	}
	return verified, wrong, len(sums), nil
}
