// Package daemon runs other programs beside this one, for experiments and tests.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Process is a program that runs beside this one.
type Process struct {
	PID   int
	name  string
	cmd   *exec.Cmd
	said  output
	ended chan struct{}
	err   error // how it ended; valid after ended
}

// output keeps what a program writes, for errors that quote it.
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
	stopLimit  = 30 * time.Second
)

// Start starts a program in the folder dir and waits until it answers at http://address/-/ready. If
// it ends before, or is not ready after 60 s, the error quotes what it wrote. It gets a SIGTERM
// when ctx ends.
func Start(ctx context.Context, dir, address, program string, args ...string) (*Process, error) {
	p, err := Begin(ctx, dir, program, args...)
	if err != nil {
		return nil, err
	}
	if err := p.Await(ctx, func() bool { return answers(ctx, "http://"+address+"/-/ready") }); err != nil {
		return nil, err
	}
	return p, nil
}

// Begin is Start without waiting. The program gets its own session, as a service does: a kernel
// that weighs sessions (autogroup) weighs it as one, and a Ctrl-C reaches it through ctx only.
func Begin(ctx context.Context, dir, program string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	return Run(cmd)
}

// Run starts a command and keeps what it writes.
func Run(cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: filepath.Base(cmd.Path), cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.said, &p.said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.PID = cmd.Process.Pid
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Await returns when the program is ready. If it ends before, is not ready after 60 s, or ctx ends,
// Await stops it, and the error quotes what it wrote.
func (p *Process) Await(ctx context.Context, ready func() bool) error {
	begun := time.Now()
	for ctx.Err() == nil && time.Since(begun) < startLimit {
		if ready() {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		case <-p.ended:
			return fmt.Errorf("%s ended: %w: %s", p.name, p.err, &p.said)
		}
	}
	return errors.Join(fmt.Errorf("%s did not come up within %v: %s", p.name, startLimit, &p.said), p.Stop())
}

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Said returns what the program has written so far.
func (p *Process) Said() string { return p.said.String() }

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

// Stop asks the program to end, and waits; after 30 s it kills it. It is no error if a signal has
// ended the program before.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(stopLimit):
		_ = p.Kill()
		return fmt.Errorf("%s does not end on SIGTERM: %s", p.name, &p.said)
	}
	if p.err != nil && p.cmd.ProcessState.ExitCode() > 0 {
		return fmt.Errorf("%s: %w: %s", p.name, p.err, &p.said)
	}
	return nil
}

// Kill kills the program without warning, and waits. It returns an error if the program had ended
// by itself.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	return err
}
