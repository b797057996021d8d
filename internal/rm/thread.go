package rm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The first thread of a process may end while others go on (pthread_exit in main). Then the process has no
// descriptors by its own PID, neither in /proc nor for pidfd_getfd: its other threads have them.

// another returns a thread that goes on, of a process whose first one has ended; 0 if there is none, or if the first
// one goes on.
func another(pid int) (tid int) {
	if first, err := statOf(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || !first.Exiting {
		return 0
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil || tid == pid {
			continue
		}
		if stat, err := statOf(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid)); err == nil && !stat.Exiting {
			return tid
		}
	}
	return 0
}

// duplicateOfThread duplicates a descriptor of the process behind pidfd through another thread, if its first one has
// ended; if not, err is what the first one answered. Before Linux 6.9 the kernel opens no threads: then it returns an error
// that is ErrUnsupported.
func duplicateOfThread(pidfd, fd int, err error) (int, error) {
	pid := behind(pidfd)
	tid := another(pid)
	if tid == 0 {
		return -1, err
	}
	thread, opened := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
	switch {
	case errors.Is(opened, unix.EINVAL):
		return -1, fmt.Errorf("%w: its first thread has ended, so it needs Linux 6.9", ErrUnsupported)
	case opened != nil:
		return -1, opened
	}
	defer func() { _ = unix.Close(thread) }()
	// Both numbers may have been given to others meanwhile, unless they still belong together.
	if _, gone := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, tid)); gone != nil || behind(pidfd) != pid {
		return -1, unix.ESRCH
	}
	return unix.PidfdGetfd(thread, fd, 0)
}

func statOf(name string) (Stat, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return Stat{}, err
	}
	return parseStat(string(text))
}

// behind returns the PID of the process behind a pidfd; 0 if it has ended.
func behind(pidfd int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				return 0
			}
			return max(pid, 0)
		}
	}
	return 0
}
