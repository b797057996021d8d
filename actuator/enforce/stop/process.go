package stop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
)

// Process is an open process: it stays the same one even if its PID is used again.
type Process struct {
	PID    int
	pidfd  int
	folder string // its folder in the proc file system
}

// errGone means that a process has ended.
var errGone = errors.New("the process has ended")

// openProcess opens the process of a hold. It returns errGone if the process has ended, also if
// another process has its PID now.
func openProcess(folder string, h Hold) (*Process, error) {
	pidfd, err := unix.PidfdOpen(h.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", h.PID, err)
	}
	p := Of(folder, h.PID, pidfd)
	// If the process behind the pidfd is still alive afterwards, what we read of the PID is about it.
	s, ok := proc.ReadStat(folder, h.PID)
	switch {
	case p.Ended() || ok && !s.Began(h.Start):
		return nil, errors.Join(errGone, p.close())
	case !ok: // it lives: do not forget its hold
		return nil, errors.Join(fmt.Errorf("read when process %d started", h.PID), p.close())
	}
	return p, nil
}

// Of returns a Process for a pidfd that the caller opened and keeps open.
func Of(folder string, pid, pidfd int) *Process {
	return &Process{PID: pid, pidfd: pidfd, folder: filepath.Join(folder, strconv.Itoa(pid))}
}

func (p *Process) close() error { return unix.Close(p.pidfd) }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool { return proc.Ended(p.pidfd) }

// Continue sends SIGCONT. For a process that has ended it does nothing.
func (p *Process) Continue() error {
	if err := unix.PidfdSendSignal(p.pidfd, unix.SIGCONT, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("continue process %d: %w", p.PID, err)
	}
	return nil
}

// Pending reads which signals wait for the process. The error is errGone if it has ended.
func (p *Process) Pending() (Pending, error) {
	status, err := os.ReadFile(filepath.Join(p.folder, "status"))
	if err != nil || p.Ended() {
		return Pending{}, errGone
	}
	return pending(string(status)), nil
}

// Threads reads what the threads of the process do. The error is errGone if it has ended.
//
// It looks twice where no thread runs: one that slept when we read it may have run until another
// thread stopped the process. After the second look no thread can begin a call. A thread that was
// stopped at the first look is not read again: it runs only after a SIGCONT, and one that is not
// ours may come at any time after the second look too.
func (p *Process) Threads() (t Threads, err error) {
	stopped := map[int]bool{}
	for range 2 {
		if err := p.lookAtThreads(&t, stopped); err != nil {
			return t, errGone
		}
		if t.Running {
			break
		}
	}
	if p.Ended() {
		return t, errGone
	}
	return t, nil
}

func (p *Process) lookAtThreads(t *Threads, stopped map[int]bool) error {
	folder := filepath.Join(p.folder, "task")
	threads, err := os.ReadDir(folder)
	for _, entry := range threads {
		tid, err := strconv.Atoi(entry.Name())
		if err != nil || stopped[tid] {
			continue
		}
		switch one, _ := proc.ReadStat(folder, tid); one.State {
		case 'T':
			t.Stopped, stopped[tid] = true, true
		case 'R':
			t.Running = true
		}
	}
	return err
}

// pending reads the pending signals of the process from /proc/PID/status. A SIGSTOP of a thread does
// not count: the kernel program sends its own to the thread.
func pending(status string) (p Pending) {
	has := func(set uint64, signal syscall.Signal) bool { return set>>(signal-1)&1 != 0 }
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if name != "ShdPnd" && name != "SigPnd" {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			continue
		}
		p.Stop = p.Stop || name == "ShdPnd" && has(set, unix.SIGSTOP)
		for _, signal := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
			p.End = p.End || has(set, signal)
		}
	}
	return p
}
