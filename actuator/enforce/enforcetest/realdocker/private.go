package realdocker

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
)

// Daemon is a Docker daemon that belongs to one test, which may stop and start
// it.
type Daemon struct {
	// Host is its address.
	Host string

	t          *testing.T
	dir        string
	args       []string
	containerd *process
	dockerd    *process
	log        syncBuffer
}

// process is a program that was started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (d *Daemon) run(name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), done: make(chan struct{})} //nolint:gosec,noctx // of the test, which ends it
	p.cmd.Stdout, p.cmd.Stderr = &d.log, &d.log
	// A network of its own: a daemon without a bridge removes docker0 of the
	// network that it finds, which is the machine's own engine's.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	return p, nil
}

func (p *process) end(s syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(s)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// NewDaemon starts a daemon with folders and a containerd of its own, and further
// arguments, or skips the test with the reason.
func NewDaemon(t *testing.T, args ...string) *Daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a second Docker daemon needs root")
	}
	for _, program := range []string{"dockerd", "containerd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here", program)
		}
	}
	// Not t.TempDir(): a socket's path must be short.
	dir, err := os.MkdirTemp("", "laxity-test-")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Host: "unix://" + filepath.Join(dir, "d.sock"), t: t, dir: dir, args: args}
	t.Cleanup(d.remove)
	if !d.startContainerd() || !d.start() {
		t.Skipf("no second Docker daemon can be had here: %s", d.log.tail())
	}
	if err := d.raiseLoopback(); err != nil {
		t.Fatal(err)
	}
	return d
}

// Start starts the daemon again.
func (d *Daemon) Start() {
	d.t.Helper()
	if !d.start() {
		d.t.Fatalf("the daemon did not come back: %s", d.log.tail())
	}
}

// remove ends all and takes the folders away.
func (d *Daemon) remove() {
	d.Stop()
	d.containerd.end(syscall.SIGTERM)
	mounts, _ := os.ReadFile("/proc/self/mounts")
	lines := strings.Split(string(mounts), "\n")
	for _, line := range slices.Backward(lines) { // the inner ones first
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], d.dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Errorf("left behind: %v", err)
	}
}

// startContainerd gives the daemon a containerd of its own, which lives on while
// the daemon restarts, as a machine's does.
func (d *Daemon) startContainerd() bool {
	config := filepath.Join(d.dir, "containerd.toml")
	text := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	p, err := d.run("containerd", "--config="+config, "--root="+filepath.Join(d.dir, "c"), "--state="+filepath.Join(d.dir, "s"), "--address="+d.socket())
	if err != nil {
		d.log.add(err.Error())
		return false
	}
	d.containerd = p
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if c, err := new(net.Dialer).DialContext(d.t.Context(), "unix", d.socket()); err == nil {
			return c.Close() == nil
		}
		select {
		case <-p.done:
			return false
		default:
		}
	}
	return false
}

func (d *Daemon) socket() string { return filepath.Join(d.dir, "c.sock") }

func (d *Daemon) start() bool {
	// Its own configuration: the machine's may contradict the flags.
	config := filepath.Join(d.dir, "daemon.json")
	if err := os.WriteFile(config, []byte(`{"storage-driver":"vfs"}`), 0o600); err != nil {
		d.t.Fatal(err)
	}
	// One that was killed leaves it behind; its number may be somebody else's now.
	_ = os.Remove(filepath.Join(d.dir, "pid"))
	p, err := d.run("dockerd", append([]string{"--config-file=" + config, "--data-root=" + filepath.Join(d.dir, "data"), "--exec-root=" + filepath.Join(d.dir, "exec"),
		"--pidfile=" + filepath.Join(d.dir, "pid"), "--host=" + d.Host, "--containerd=" + d.socket(), "--iptables=false", "--bridge=none", "--live-restore"}, d.args...)...)
	if err != nil {
		d.log.add(err.Error())
		return false
	}
	d.dockerd = p
	c, err := client.NewClientWithOpts(client.WithHost(d.Host), client.WithAPIVersionNegotiation())
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if _, err := c.Ping(context.Background()); err == nil {
			return true
		}
		select {
		case <-p.done:
			return false
		default:
		}
	}
	return false
}

// PID is its process, which has a network of its own.
func (d *Daemon) PID() int { return d.dockerd.cmd.Process.Pid }

// Stop ends the daemon as an upgrade does; containers live on (live-restore).
func (d *Daemon) Stop() { d.dockerd.end(syscall.SIGTERM); d.dockerd = nil }

// Kill ends it without a warning.
func (d *Daemon) Kill() { d.dockerd.end(syscall.SIGKILL); d.dockerd = nil }

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) add(text string) { _, _ = s.Write([]byte(text)) }

func (s *syncBuffer) tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.b.Bytes()
	return string(b[max(0, len(b)-600):])
}
