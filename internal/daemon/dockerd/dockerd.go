// Package dockerd starts a Docker engine of one's own, which may be stopped, killed
// and started again, for experiments and tests. It has folders, a containerd and a
// network of its own, so that the machine's engine does not notice.
package dockerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/internal/daemon"
)

// Engine is a Docker daemon of one's own.
type Engine struct {
	// Host is its address.
	Host string

	dir        string
	args       []string
	containerd *daemon.Process
	dockerd    *daemon.Process // nil: stopped
}

// LiveRestore as an argument lets containers live on while no daemon runs.
const LiveRestore = "--live-restore"

// New starts an engine with further arguments of dockerd. The error says what it
// lacks here: root, dockerd, containerd, or something that they say. Its images and
// containers go with Close.
func New(ctx context.Context, args ...string) (_ *Engine, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a second Docker engine needs root")
	}
	// A socket's path must be short.
	dir, err := os.MkdirTemp("", "laxity-dockerd-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "d.sock"), dir: dir, args: args}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("no second Docker engine can be had here: %w", err), e.Close())
		}
	}()
	if err := e.startContainerd(ctx); err != nil {
		return nil, err
	}
	if err := e.Start(ctx); err != nil {
		return nil, err
	}
	return e, e.raiseLoopback()
}

// run starts a program of the engine, which ends with the engine and not with ctx:
// containers are removed after that.
func run(ctx context.Context, name string, args ...string) (*daemon.Process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	// A network of its own: a daemon without a bridge removes docker0 of the
	// network that it finds, which is the machine's own engine's.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	return daemon.Run(cmd)
}

// startContainerd gives the engine a containerd of its own, which lives on while
// dockerd restarts, as a machine's does.
func (e *Engine) startContainerd(ctx context.Context) (err error) {
	config := filepath.Join(e.dir, "containerd.toml")
	text := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	if e.containerd, err = run(ctx, "containerd", "--config="+config, "--root="+filepath.Join(e.dir, "c"),
		"--state="+filepath.Join(e.dir, "s"), "--address="+e.socket()); err != nil {
		return err
	}
	return e.containerd.Await(ctx, func() bool {
		c, err := new(net.Dialer).DialContext(ctx, "unix", e.socket())
		return err == nil && c.Close() == nil
	})
}

func (e *Engine) socket() string { return filepath.Join(e.dir, "c.sock") }

// Start starts the daemon, again after Stop or Kill, and waits until it answers.
func (e *Engine) Start(ctx context.Context) error {
	// Its own configuration: the machine's may contradict the flags.
	config := filepath.Join(e.dir, "daemon.json")
	if err := os.WriteFile(config, []byte(`{"storage-driver":"vfs"}`), 0o600); err != nil {
		return err
	}
	// One that was killed leaves it behind; its number may be somebody else's now.
	_ = os.Remove(filepath.Join(e.dir, "pid"))
	docker, err := client.NewClientWithOpts(client.WithHost(e.Host), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer docker.Close()
	if e.dockerd, err = run(ctx, "dockerd", append([]string{"--config-file=" + config, "--data-root=" + filepath.Join(e.dir, "data"),
		"--exec-root=" + filepath.Join(e.dir, "exec"), "--pidfile=" + filepath.Join(e.dir, "pid"), "--host=" + e.Host,
		"--containerd=" + e.socket(), "--iptables=false", "--bridge=none"}, e.args...)...); err != nil {
		return err
	}
	return e.dockerd.Await(ctx, func() bool { _, err := docker.Ping(ctx); return err == nil })
}

// PID is the daemon's process, which has a network of its own.
func (e *Engine) PID() int { return e.dockerd.PID }

// Stop ends the daemon as an upgrade does.
func (e *Engine) Stop() error { return e.end((*daemon.Process).Stop) }

// Kill ends it without a warning.
func (e *Engine) Kill() error { return e.end((*daemon.Process).Kill) }

func (e *Engine) end(by func(*daemon.Process) error) error {
	if e.dockerd == nil {
		return nil
	}
	err := by(e.dockerd)
	e.dockerd = nil
	return err
}

// killShims ends those of containers that nobody could remove: a daemon that is killed
// while it starts a container forgets it.
func (e *Engine) killShims() {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	for _, file := range all {
		text, _ := os.ReadFile(file) // gone: it has ended
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && bytes.Contains(text, []byte("containerd-shim")) && bytes.Contains(text, []byte("\x00"+e.socket()+"\x00")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Close ends all and takes the folders away.
func (e *Engine) Close() error {
	errs := []error{e.Stop()}
	if e.containerd != nil {
		errs = append(errs, e.containerd.Stop())
	}
	e.killShims()
	mounts, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) { // the inner ones first
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], e.dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(e.dir))...)
}
