// Package dockerd starts a separate Docker engine, which may be stopped, killed and started again,
// for experiments and tests. It has its own folders, containerd and network, so it does not disturb
// the machine's engine.
package dockerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/internal/daemon"
)

// Engine is a separate Docker daemon.
type Engine struct {
	// Host is its address.
	Host string

	daemon.Service // dockerd

	dir        string
	args       []string
	containerd daemon.Service
}

// LiveRestore as an argument keeps containers running while no daemon runs.
const LiveRestore = "--live-restore"

// New starts an engine with further arguments of dockerd. The error says what is missing here:
// root, dockerd, containerd, or something that they report. Close removes its images and
// containers.
func New(ctx context.Context, args ...string) (_ *Engine, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a second Docker engine needs root")
	}
	// The path of a socket must be short.
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

// program is one of the engine's. It ends with the engine and not with ctx, since containers are
// removed after ctx ended.
func program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	// Its own network: a daemon without a bridge removes docker0 of the network that it finds, which
	// belongs to the machine's engine.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	return cmd
}

// startContainerd gives the engine its own containerd, which keeps running while dockerd restarts,
// as on any machine.
func (e *Engine) startContainerd(ctx context.Context) error {
	config := filepath.Join(e.dir, "containerd.toml")
	text := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := program(ctx, "containerd", "--config="+config, "--root="+filepath.Join(e.dir, "c"),
		"--state="+filepath.Join(e.dir, "s"), "--address="+e.socket())
	return e.containerd.Run(ctx, cmd, func() bool {
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
	// A killed daemon leaves this file behind; its number may be another process's now.
	_ = os.Remove(filepath.Join(e.dir, "pid"))
	docker, err := client.NewClientWithOpts(client.WithHost(e.Host), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer docker.Close()
	cmd := program(ctx, "dockerd", append([]string{"--config-file=" + config, "--data-root=" + filepath.Join(e.dir, "data"),
		"--exec-root=" + filepath.Join(e.dir, "exec"), "--pidfile=" + filepath.Join(e.dir, "pid"), "--host=" + e.Host,
		"--containerd=" + e.socket(), "--iptables=false", "--bridge=none"}, e.args...)...)
	return e.Run(ctx, cmd, func() bool { _, err := docker.Ping(ctx); return err == nil })
}

// Close stops everything and removes the folders.
func (e *Engine) Close() error {
	errs := []error{e.Stop(), e.containerd.Stop()}
	daemon.KillShims(e.socket())
	return errors.Join(append(errs, daemon.RemoveFolder(e.dir))...)
}
