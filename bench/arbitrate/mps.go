package arbitrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/bench/tenant"
)

// mpsDaemon is NVIDIA's multi-process service with folders of its own, so that
// none but our containers find it.
type mpsDaemon struct {
	program string
	dir     string
}

const mpsTimeout = 15 * time.Second

// startMPS starts the service, lets a first container start its server, which
// the measured ones should not have to wait for, and checks that it did.
func (m *measurement) startMPS(ctx context.Context) (host tenant.Spec, stop func() error, err error) {
	program, err := findMPS()
	if err != nil {
		return host, nil, &unavailableError{err.Error()}
	}
	d := mpsDaemon{program: program, dir: filepath.Join(m.Dir, "mps")}
	if err := errors.Join(os.MkdirAll(d.pipe(), 0o755), os.MkdirAll(d.logs(), 0o755)); err != nil {
		return host, nil, err
	}
	if out, err := d.command(ctx, "", "-d"); err != nil {
		return host, nil, &unavailableError{fmt.Sprintf("%s -d: %v: %s", program, err, out)}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	host = tenant.Spec{
		Env:    []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.pipe(), "CUDA_MPS_LOG_DIRECTORY=" + d.logs()},
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: d.dir, Target: d.dir}},
		IPC:    "host",
	}
	first := kind{n: 64, kernels: 1}
	t, err := m.Tenants.Start(ctx, m.spec(first, fmt.Sprintf("laxity-bench-arbitrate-%d-mps", os.Getpid()), 0, host))
	if err != nil {
		return host, nil, err
	}
	if err := errors.Join(t.Wait(ctx), t.Remove()); err != nil {
		return host, nil, err
	}
	servers, err := d.command(ctx, "get_server_list\n")
	if err != nil {
		return host, nil, fmt.Errorf("MPS: %w: %s", err, servers)
	}
	if servers == "" {
		return host, nil, &unavailableError{"a container did not reach the MPS daemon: it has no server"}
	}
	return host, d.stop, nil
}

func findMPS() (string, error) {
	const name = "nvidia-cuda-mps-control"
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/nvidia/bin", "/usr/bin", "/opt/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no MPS: %w", err)
}

func (d mpsDaemon) pipe() string { return filepath.Join(d.dir, "pipe") }
func (d mpsDaemon) logs() string { return filepath.Join(d.dir, "log") }

// command runs the control program; without arguments it takes commands on its
// standard input.
func (d mpsDaemon) command(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, mpsTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Env = append(os.Environ(), "CUDA_MPS_PIPE_DIRECTORY="+d.pipe(), "CUDA_MPS_LOG_DIRECTORY="+d.logs())
	cmd.Stdin = strings.NewReader(input)
	// A file, because the daemon keeps it: of a pipe the end would never come.
	out, err := os.Create(filepath.Join(d.dir, "output"))
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	text, rerr := os.ReadFile(out.Name())
	return string(bytes.TrimSpace(text)), errors.Join(err, rerr)
}

// stop ends the service and waits for its end, also when the caller's context is
// over: an MPS server that lives on changes how the next way runs.
func (d mpsDaemon) stop() error {
	pid := d.pid()
	out, err := d.command(context.Background(), "quit\n")
	if err != nil {
		return fmt.Errorf("end MPS: %w: %s", err, out)
	}
	for deadline := time.Now().Add(mpsTimeout); pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); {
		if time.Now().After(deadline) {
			return fmt.Errorf("the MPS daemon (process %d) has not ended", pid)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return os.RemoveAll(d.dir)
}

// pid of the daemon; 0 if it is not known.
func (d mpsDaemon) pid() int {
	text, _ := os.ReadFile(filepath.Join(d.pipe(), "nvidia-cuda-mps-control.pid"))
	pid, _ := strconv.Atoi(string(bytes.TrimSpace(text)))
	return pid
}
