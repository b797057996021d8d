package proc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
)

// process is a line of /proc/PID/stat, and the tracer that its status names.
type process struct {
	name                        string
	state                       string
	parent, group, session, pid int
	flags, start                uint64
	tracer                      int
}

func (p process) write(t *testing.T, dir string) {
	t.Helper()
	folder := filepath.Join(dir, fmt.Sprint(p.pid))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("%d (%s) %s %d %d %d 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", p.pid, p.name, p.state, p.parent, p.group, p.session, p.flags, p.start)
	for name, content := range map[string]string{"stat": stat, "status": fmt.Sprintf("Name:\t%s\nTracerPid:\t%d\n", p.name, p.tracer)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadStat(t *testing.T) {
	dir := t.TempDir()
	for i, tc := range []struct {
		process
		state   byte
		exiting bool
	}{
		{process{name: "cat", state: "S", start: 123456}, 'S', false},
		{process{name: "a) R 1 (b", state: "T", start: 7}, 'T', false},
		{process{name: "cat", state: "R", flags: 0x4, start: 7}, 'R', true},
		{process{name: "cat", state: "Z", start: 7}, 'Z', true},
	} {
		tc.pid = i + 10
		tc.write(t, dir)
		s, ok := proc.ReadStat(dir, tc.pid)
		if !ok || s.State != tc.state || s.Exiting != tc.exiting || s.Start != tc.start {
			t.Errorf("%+v: %+v, %v", tc.process, s, ok)
		}
	}
	if _, ok := proc.ReadStat(dir, 1); ok {
		t.Error("a process that is not there was read")
	}
	if err := os.WriteFile(filepath.Join(dir, "10", "stat"), []byte("10 (cat) S 1 2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := proc.ReadStat(dir, 10); ok {
		t.Error("a line that was cut off was read")
	}
}

func TestBegan(t *testing.T) {
	s := proc.Stat{Start: 123}
	for at, want := range map[time.Duration]bool{0: true, 1230 * time.Millisecond: true, 1239999 * time.Microsecond: true, 1240 * time.Millisecond: false, 1229 * time.Millisecond: false} {
		if s.Began(at) != want {
			t.Errorf("began at %v: %v", at, !want)
		}
	}
}

// A tracer would get the signal, and a shell with job control would take the process for
// suspended.
func TestObstacle(t *testing.T) {
	init := process{name: "init", state: "S", pid: 1, group: 1, session: 1}
	shell := process{name: "bash", state: "S", pid: 10, parent: 1, group: 10, session: 10}
	for name, tc := range map[string]struct {
		family []process // the last one is asked about
		want   string
	}{
		"a leader of its session":               {[]process{init, {pid: 20, parent: 1, group: 20, session: 20}}, ""},
		"traced":                                {[]process{init, {pid: 20, parent: 1, group: 20, session: 20, tracer: 7}}, "traced"},
		"in a job of a shell":                   {[]process{init, shell, {pid: 20, parent: 10, group: 20, session: 10}}, "job control"},
		"in a job of a shell, behind its first": {[]process{init, shell, {pid: 20, parent: 10, group: 20, session: 10, name: "sh", state: "S"}, {pid: 21, parent: 20, group: 20, session: 10}}, "job control"},
		"in the group of a shell without jobs":  {[]process{init, shell, {pid: 20, parent: 10, group: 10, session: 10}}, ""},
		"its parent has gone":                   {[]process{{pid: 20, parent: 10, group: 20, session: 10}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, pid := t.TempDir(), 0
			for _, p := range tc.family {
				if p.state == "" {
					p.name, p.state = "cat", "S"
				}
				p.write(t, dir)
				pid = p.pid
			}
			if got := proc.Obstacle(dir, pid); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	if got := proc.Obstacle(t.TempDir(), 20); got != "" {
		t.Errorf("of one that is gone: %q", got)
	}
}

// child is a process that lives until end.
type child struct {
	pid, fd int
	end     func() // idempotent
}

func start(t *testing.T) child {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := child{pid: cmd.Process.Pid, fd: fd}
	ended := false
	c.end = func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() {
		c.end()
		_ = unix.Close(fd)
	})
	return c
}

// Each process that ends is told once, one that was removed is not, and Close ends Run.
func TestExits(t *testing.T) {
	e, err := proc.NewExits()
	if err != nil {
		t.Fatal(err)
	}
	told, done := make(chan int, 16), make(chan error, 1)
	go func() { done <- e.Run(func(pid int) { told <- pid }) }()
	first, removed, last := start(t), start(t), start(t)
	for _, c := range []child{first, removed, last} {
		if proc.Ended(c.fd) {
			t.Errorf("%d lives", c.pid)
		}
		if err := e.Add(c.pid, c.fd); err != nil {
			t.Fatal(err)
		}
	}
	e.Remove(removed.fd)
	for _, c := range []child{removed, first, last} {
		c.end()
		if !proc.Ended(c.fd) {
			t.Errorf("%d has ended", c.pid)
		}
	}
	// In any order: both ended before either was told.
	got := map[int]int{<-told: 1}
	got[<-told]++
	if got[first.pid] != 1 || got[last.pid] != 1 {
		t.Errorf("told %v, want %d and %d", got, first.pid, last.pid)
	}
	// One that has ended already is told as well.
	late := start(t)
	late.end()
	if err := e.Add(late.pid, late.fd); err != nil {
		t.Fatal(err)
	}
	if pid := <-told; pid != late.pid {
		t.Errorf("told %d, want %d", pid, late.pid)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(told) > 0 {
		t.Errorf("told of %d more", len(told))
	}
	if err := e.Add(late.pid, late.fd); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Add after the end: %v", err)
	}
}

// Close gives the descriptors back, with Run and without.
func TestExitsLeakNothing(t *testing.T) {
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	ended := start(t)
	ended.end()
	for _, run := range []bool{false, true} {
		before := descriptors()
		e, err := proc.NewExits()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		if run {
			reported := make(chan int)
			go func() { done <- e.Run(func(pid int) { reported <- pid }) }()
			if err := e.Add(ended.pid, ended.fd); err != nil {
				t.Fatal(err)
			}
			<-reported // before Close: it is Run that gives them back
		} else {
			done <- nil
		}
		if err := errors.Join(e.Close(), <-done); err != nil {
			t.Error(err)
		}
		if after := descriptors(); after != before {
			t.Errorf("Run %t: %d descriptors before, %d after", run, before, after)
		}
	}
}
