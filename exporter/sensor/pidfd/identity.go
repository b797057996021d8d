package pidfd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
)

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func explainOpen(pid int, err error) error {
	switch {
	case errors.Is(err, unix.ESRCH):
		err = sensor.ErrGone
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		err = fmt.Errorf("it is no process, or only a thread of one: %w", err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		err = fmt.Errorf("%w (raise the limit of open files: one is needed for each process that is watched)", err)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// startMark distinguishes the process behind a pidfd from every other process of this boot
// that had, or will have, its PID. Since Linux 6.9 a pidfd is a file of pidfs, and no other
// process gets its inode number until the next boot. Older kernels have only the start time.
// It has steps of 10 ms: a PID that is reused within one step gets the same mark.
func startMark(fd, pid int) (string, error) {
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err == nil && system.Type == unix.PID_FS_MAGIC {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return "", fmt.Errorf("pidfd of process %d: %w", pid, err)
		}
		return "i" + strconv.FormatUint(stat.Ino, 10), nil
	}
	return startTimeMark(fd, pid)
}

func startTimeMark(fd, pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || ended(fd) { // then it was of another process
		return "", fmt.Errorf("process %d: %w", pid, sensor.ErrGone)
	}
	if err != nil {
		return "", fmt.Errorf("start time of process %d: %w", pid, err)
	}
	// The command name, field 2, may hold blanks and brackets; the start is field 22.
	const start = 22 - 3
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) <= start {
		return "", fmt.Errorf("start time of process %d: cannot read %q", pid, data)
	}
	return "s" + string(fields[start]), nil
}
