// Package podman starts a separate Podman service, which may be stopped, killed and started again,
// or end by itself while nobody asks, as under systemd's socket. It has its own storage, state,
// events and locks, so it does not disturb the machine's Podman.
package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/internal/daemon"
)

// Engine is a separate Podman service.
type Engine struct {
	// Host is its address.
	Host string

	daemon.Service // containers go on without it

	dir    string
	socket *activation // nil: the service itself listens
	user   *rootless   // nil: root
}

// config makes the engine independent of the machine's configuration. A sandbox may refuse
// Podman's default resource limits, so containers inherit those of the service. Locks are files,
// because those in shared memory belong to all engines of the machine.
const config = `[containers]
default_ulimits = []
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = %q
[network]
network_config_dir = %q
`

// New starts an engine. The error says what is missing here: root, Podman, or something that it
// reports. Close removes its images and containers.
func New(ctx context.Context) (*Engine, error) {
	e, err := prepare()
	if err != nil {
		return nil, err
	}
	if err := e.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("no Podman can be had here: %w", err), e.Close())
	}
	return e, nil
}

// prepare makes the engine's folder.
func prepare() (*Engine, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a Podman of its own needs root")
	}
	if _, err := exec.LookPath("podman"); err != nil {
		return nil, err
	}
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "laxity-podman-")
	if err != nil {
		return nil, err
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "p.sock"), dir: dir}
	text := fmt.Sprintf(config, filepath.Join(dir, "tmp"), filepath.Join(dir, "net"))
	return e, os.WriteFile(e.config(), []byte(text), 0o600)
}

func (e *Engine) config() string { return filepath.Join(e.dir, "containers.conf") }

// Env are the variables that lead clients to this engine: docker's, and the command podman, which
// reads its defaults from CONTAINERS_CONF.
func (e *Engine) Env() []string {
	return []string{"DOCKER_HOST=" + e.Host, "CONTAINERS_CONF=" + e.config()}
}

// command is podman on this engine's storage.
func (e *Engine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "podman", append([]string{"--root=" + filepath.Join(e.dir, "root"), "--runroot=" + filepath.Join(e.dir, "run"),
		"--storage-driver=vfs"}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+e.config())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if e.user != nil {
		return e.user.wrap(ctx, e.dir, cmd)
	}
	return cmd
}

// Start starts the service, again after Stop or Kill, and waits until it answers. It ends with the
// engine and not with ctx, since containers are removed after ctx ended.
func (e *Engine) Start(ctx context.Context) error {
	docker, err := client.NewClientWithOpts(client.WithHost(e.Host), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer docker.Close()
	cmd := e.command(context.WithoutCancel(ctx), "system", "service", "--time=0", e.Host)
	return e.Run(ctx, cmd, func() bool { _, err := docker.Ping(ctx); return err == nil })
}

// Close removes containers, stops everything and removes the folder.
func (e *Engine) Close() error {
	var errs []error
	if e.socket != nil {
		errs = append(errs, e.socket.close())
	}
	if e.user != nil {
		// First: what keeps the user's namespace also keeps the service's output open.
		errs = append(errs, e.user.close())
	}
	_ = e.Stop() // on SIGTERM it may complain about clients that are still there
	if e.user == nil {
		errs = append(errs, e.removeContainers())
	}
	return errors.Join(append(errs, daemon.RemoveFolder(e.dir))...)
}

func (e *Engine) removeContainers() error {
	ctx := context.Background()
	_ = e.command(ctx, "unpause", "--all").Run() // none may be paused
	if out, err := e.command(ctx, "pod", "rm", "--all", "--force", "--time=0").CombinedOutput(); err != nil {
		return fmt.Errorf("remove Podman's pods: %w: %s", err, out)
	}
	if out, err := e.command(ctx, "rm", "--all", "--force", "--time=0").CombinedOutput(); err != nil {
		return fmt.Errorf("remove Podman's containers: %w: %s", err, out)
	}
	return nil
}
