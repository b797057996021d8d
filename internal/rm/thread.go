package rm

import (
	"context"
	"errors"
	"fmt"
	"io"
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
		if tid, err := strconv.Atoi(t.Name()); err == nil && tid != pid && has(pid, tid) {
			return tid
		}
	}
	return 0
}

// tries is how many threads are tried: each may end before it is used.
const tries = 10

// duplicateOfThread duplicates a descriptor of the process behind pidfd through another thread, if its first one has
// ended; if not, err is what the first one answered. Before Linux 6.9 the kernel opens no threads: then it returns an error
// that is ErrUnsupported.
func duplicateOfThread(pidfd, fd int, err error) (int, error) {
	pid := behind(pidfd)
	for range tries {
		tid := another(pid)
		if tid == 0 {
			return -1, err
		}
		thread, opened := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
		if errors.Is(opened, unix.EINVAL) {
			return -1, fmt.Errorf("%w: its first thread has ended, so it needs Linux 6.9", ErrUnsupported)
		}
		if opened != nil {
			continue
		}
		// Its number may have been given to another one meanwhile, unless they still belong together.
		if !has(pid, tid) || behind(pidfd) != pid {
			_ = unix.Close(thread)
			continue
		}
		dup, err := unix.PidfdGetfd(thread, fd, 0)
		_ = unix.Close(thread)
		if err == nil || has(pid, tid) {
			return dup, err
		}
	}
	return -1, fmt.Errorf("%w: its threads end one after another", ErrChanged)
}

// entries lists the descriptors of a process, in no order, and in which folder they are. It fails
// if there are more than maxDescriptors.
func entries(ctx context.Context, pid int) (folder string, all []string, err error) {
	folder = fmt.Sprintf("/proc/%d/fd", pid)
	all, err = namesIn(ctx, folder)
	for range tries {
		if err != nil || len(all) > 0 {
			return folder, all, err
		}
		tid := another(pid)
		if tid == 0 {
			return folder, all, err
		}
		folder = fmt.Sprintf("/proc/%d/task/%d/fd", pid, tid)
		if all, err = namesIn(ctx, folder); !has(pid, tid) {
			all, err = nil, nil
		}
	}
	return folder, nil, fmt.Errorf("%w: its threads end one after another", ErrChanged)
}

func namesIn(ctx context.Context, folder string) ([]string, error) {
	d, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return readNames(ctx, d)
}

// readNames reads the names in a folder until there are more than maxDescriptors.
func readNames(ctx context.Context, folder interface{ Readdirnames(n int) ([]string, error) }) (all []string, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		names, err := folder.Readdirnames(1024)
		all = append(all, names...)
		switch {
		case len(all) > maxDescriptors:
			return nil, tooMuch("it has more than %d descriptors open", maxDescriptors)
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
	}
}

// has reports whether a process has a thread that goes on.
func has(pid, tid int) bool {
	stat, err := statOf(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	return err == nil && !stat.Exiting
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
