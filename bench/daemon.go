package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Daemon is a program that an experiment or a test runs beside itself.
type Daemon struct {
	PID   int
	name  string
	cmd   *exec.Cmd
	said  output
	ended chan struct{}
	err   error // of its end; valid after ended
}

// output keeps what a daemon says, for the error that quotes it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

const (
	startLimit = 60 * time.Second // Prometheus on a busy machine
	stopLimit  = 20 * time.Second
)

// StartDaemon starts a program in the folder dir and waits until it answers at
// http://address/-/ready. The error quotes what it said if it ends before that, or
// has not come up after 60 s. It gets a SIGTERM when ctx ends.
func StartDaemon(ctx context.Context, dir, address, program string, args ...string) (*Daemon, error) {
	d, err := BeginDaemon(ctx, dir, program, args...)
	if err != nil {
		return nil, err
	}
	if err := d.await(ctx, address); err != nil {
		return nil, err
	}
	return d, nil
}

// BeginDaemon is StartDaemon that does not wait.
func BeginDaemon(ctx context.Context, dir, program string, args ...string) (*Daemon, error) {
	d := &Daemon{name: filepath.Base(program), cmd: exec.CommandContext(ctx, program, args...), ended: make(chan struct{})}
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = dir, &d.said, &d.said
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = stopLimit
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.PID = d.cmd.Process.Pid
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	return d, nil
}

func (d *Daemon) await(ctx context.Context, address string) error {
	begun := time.Now()
	for ctx.Err() == nil && time.Since(begun) < startLimit {
		if answers(ctx, "http://"+address+"/-/ready") {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		case <-d.ended:
			return fmt.Errorf("%s ended: %w: %s", d.name, d.err, &d.said)
		}
	}
	return errors.Join(fmt.Errorf("%s did not come up within %v: %s", d.name, startLimit, &d.said), d.Stop())
}

// Ended is closed when the program has ended.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// Said is what the program has written so far.
func (d *Daemon) Said() string { return d.said.String() }

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Stop asks the program to end, and waits; after 20 s it is killed. It is no error
// if a signal has ended it before.
func (d *Daemon) Stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.ended:
	case <-time.After(stopLimit):
		_ = d.cmd.Process.Kill()
		<-d.ended
		return fmt.Errorf("%s does not end on SIGTERM: %s", d.name, &d.said)
	}
	if d.err != nil && d.cmd.ProcessState.ExitCode() > 0 {
		return fmt.Errorf("%s: %w: %s", d.name, d.err, &d.said)
	}
	return nil
}

// Program finds a program of Laxity in the folder of this one, or on PATH.
func Program(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither beside this program nor on PATH: make build", name)
}

// FreeAddresses returns n loopback addresses on which nobody listens now.
func FreeAddresses(ctx context.Context, n int) ([]string, error) {
	var all []string
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that they differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}
