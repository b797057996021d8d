package simtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/workload"
)

// patience is how long a test waits for an event before it gives up. No test
// passes by waiting so long.
const patience = 60 * time.Second

// moment is how long a failed test waits to learn how a program ended.
const moment = 20 * time.Second

// Tenant is a workload that was started, and its time line.
type Tenant struct {
	PID      int // on the host
	events   chan workload.Event
	seen     []workload.Event
	standing func() string // how the program ended, or that it runs, for who reads of a failure
}

// Await returns the next event with this name; the test fails if the time line
// ends, or nothing comes for a minute.
func (w *Tenant) Await(t testing.TB, name string) workload.Event {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-w.events:
			if !ok {
				t.Fatalf("time line ended without %q: %v; %s", name, w.seen, w.standing())
			}
			w.seen = append(w.seen, e)
			if e.Name == name {
				return e
			}
		case <-timeout:
			t.Fatalf("no event %q within %v: %v; %s", name, patience, w.seen, w.standing())
		}
	}
}

// Timeline waits for the end of the output and returns all of its events.
func (w *Tenant) Timeline(t testing.TB) []workload.Event {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-w.events:
			if !ok {
				return w.seen
			}
			w.seen = append(w.seen, e)
		case <-timeout:
			t.Fatalf("time line did not end within %v: %v; %s", patience, w.seen, w.standing())
		}
	}
}

// follow turns output into events. The channel holds far more than a test's
// workload prints, so that nobody waits for the test to read.
func (w *Tenant) follow(output io.Reader) {
	w.events = make(chan workload.Event, 10_000)
	go func() {
		defer close(w.events)
		for e, err := range workload.Events(output) {
			if err != nil {
				return
			}
			w.events <- e
		}
	}()
}

// Process is a workload that runs as a process of this machine.
type Process struct {
	Tenant
	Process *os.Process
	done    chan struct{}
	err     error
}

// StartProcess runs the workload (internal/workload, see matmul --help) with args on
// s's GPUs. It is killed when the test ends.
func (s *Server) StartProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	program, err := workload.Build("")
	skipWithoutCompiler(t, err)
	return s.StartCommand(t, exec.CommandContext(context.Background(), program, args...))
}

// StartRanks runs the program whose parts on several of s's GPUs wait for each other
// (internal/workload, see ranks.c) with args. It is killed when the test ends.
func (s *Server) StartRanks(t testing.TB, args ...string) *Process {
	t.Helper()
	return s.StartCommand(t, exec.CommandContext(context.Background(), Ranks(t), args...))
}

// Ranks returns the path of that program.
func Ranks(t testing.TB) string {
	t.Helper()
	program, err := workload.BuildRanks("")
	skipWithoutCompiler(t, err)
	return program
}

// StartCommand runs cmd with the stand-in libcuda on s's GPUs; its output is read
// as a time line.
func (s *Server) StartCommand(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, cuda.EnvSocket+"="+s.Socket, "LD_LIBRARY_PATH="+Library(t))
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = input
	err = cmd.Start()
	input.Close()
	if err != nil {
		output.Close()
		t.Fatal(err)
	}
	p := &Process{Tenant: Tenant{PID: cmd.Process.Pid}, Process: cmd.Process, done: make(chan struct{})}
	p.follow(output)
	p.standing = p.describe
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-p.done
		output.Close()
	})
	return p
}

// describe waits a moment for the process to end, and says how it did. Its standard error is the
// test's.
func (p *Process) describe() string {
	select {
	case <-p.done:
		return fmt.Sprintf("process %d: %v", p.PID, p.err)
	case <-time.After(moment):
		return fmt.Sprintf("process %d runs", p.PID)
	}
}

// Wait returns how the process ended, as exec.Cmd.Wait does.
func (p *Process) Wait(t testing.TB) error {
	t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		t.Fatalf("process %d did not end within %v", p.PID, patience)
		return nil
	}
}
