package podman

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/daemon"
)

// activation listens in place of the service and starts it at the first connection, as systemd
// does for podman.socket.
type activation struct {
	file   *os.File
	cancel context.CancelFunc
	ended  chan struct{}
	starts atomic.Int64
	runs   atomic.Bool
	err    error // valid after ended
}

// NewActivated is New with a service that starts when a client connects, and ends once nobody has
// asked for idleSeconds, at least 1: podman.socket of systemd works like that, with 5 s.
func NewActivated(ctx context.Context, idleSeconds int) (*Engine, error) {
	e, err := prepare()
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(e.dir, "p.sock"))
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	file, err := l.(*net.UnixListener).File()
	if err != nil {
		return nil, errors.Join(err, l.Close(), e.Close())
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.socket = &activation{file: file, cancel: cancel, ended: make(chan struct{})}
	go e.socket.serve(inner, func() (*daemon.Process, error) {
		return daemon.Run(e.activated(inner, file, idleSeconds))
	})
	return e, nil
}

// activated is the service on an open socket. It takes the socket only if LISTEN_PID is its own.
func (e *Engine) activated(ctx context.Context, socket *os.File, idleSeconds int) *exec.Cmd {
	podman := e.command(ctx, "system", "service", "--time="+strconv.Itoa(idleSeconds))
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"`, "sh"}, podman.Args...)...)
	cmd.Env, cmd.SysProcAttr, cmd.ExtraFiles = podman.Env, podman.SysProcAttr, []*os.File{socket}
	return cmd
}

// serve starts the service each time somebody waits at the socket, until ctx ends.
func (a *activation) serve(ctx context.Context, start func() (*daemon.Process, error)) {
	defer close(a.ended)
	for ctx.Err() == nil {
		waits, err := a.waits()
		if err != nil {
			a.err = err
			return
		}
		if !waits {
			continue
		}
		a.runs.Store(true)
		p, err := start()
		if err != nil {
			a.err = err
			return
		}
		a.starts.Add(1)
		select {
		case <-p.Ended():
		case <-ctx.Done():
			_ = p.Stop() // on SIGTERM it may complain about clients that are still there
		}
		a.runs.Store(false)
	}
}

// waits reports whether a client waits at the socket; it looks for 20 ms.
func (a *activation) waits() (bool, error) {
	fds := []unix.PollFd{{Fd: int32(a.file.Fd()), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
	n, err := unix.Poll(fds, 20)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

func (a *activation) close() error {
	a.cancel()
	<-a.ended
	return errors.Join(a.err, a.file.Close())
}

// Running reports whether an activated service runs now.
func (e *Engine) Running() bool { return e.socket.runs.Load() }

// Starts returns how often an activated service has started.
func (e *Engine) Starts() int { return int(e.socket.starts.Load()) }
