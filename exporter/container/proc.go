package container

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Proc is the path at which the host's proc file system is mounted, "/proc" as
// a rule. The paths of control groups that it shows depend on the reader's own
// cgroup namespace: seen from inside a private one, a neighbour is "/../<id>",
// which is read as well, but the reader's own container is "/", which is not.
type Proc string

// OfPID returns the id of the container that the process belongs to. ok is false
// when it belongs to none. The error wraps fs.ErrNotExist when the process does
// not exist any more, which includes a zombie whose container is not known any
// more (cgroup v1).
//
// A PID may be reused while this reads; see sensor.Exits.Watch for how to be
// sure whose container it is.
func (p Proc) OfPID(pid int) (id string, ok bool, err error) {
	dir := filepath.Join(string(p), strconv.Itoa(pid))
	data, err := readProc(filepath.Join(dir, "cgroup"))
	if err != nil {
		return "", false, fmt.Errorf("container of process %d: %w", pid, err)
	}
	if id, ok = ParseCgroup(data); ok {
		return id, true, nil
	}
	stat, err := readProc(filepath.Join(dir, "stat"))
	if err != nil {
		return "", false, fmt.Errorf("container of process %d: %w", pid, err)
	}
	if !exited(stat) {
		return "", false, nil
	}
	// The main thread has exited, and cgroup v1 has moved it to the root. The
	// process goes on if other threads do, and those still know their group.
	if id, ok = idOfThreads(dir); ok {
		return id, true, nil
	}
	return "", false, fmt.Errorf("container of process %d: it has exited: %w", pid, fs.ErrNotExist)
}

func idOfThreads(dir string) (string, bool) {
	threads, err := filepath.Glob(filepath.Join(dir, "task", "[0-9]*", "cgroup"))
	if err != nil {
		return "", false
	}
	for _, path := range threads {
		data, err := readProc(path)
		if err != nil {
			continue // the thread ended meanwhile
		}
		if id, ok := ParseCgroup(data); ok {
			return id, true
		}
	}
	return "", false
}

// exited reads the state out of a /proc/PID/stat file: the field after the
// command name, which stands in brackets and may hold brackets itself.
func exited(stat []byte) bool {
	_, after, found := cutLast(stat, []byte(") "))
	return found && len(after) > 0 && (after[0] == 'Z' || after[0] == 'X' || after[0] == 'x')
}

func cutLast(s, sep []byte) (before, after []byte, found bool) {
	i := bytes.LastIndex(s, sep)
	if i < 0 {
		return s, nil, false
	}
	return s[:i], s[i+len(sep):], true
}

// readProc is os.ReadFile with one name for "no such process": it is ENOENT when
// the file is opened, and ESRCH when the process ends before it is read.
func readProc(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, syscall.ESRCH) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return data, err
}
