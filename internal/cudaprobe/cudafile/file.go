// Package cudafile finds the files of the CUDA driver library (libcuda) that
// processes and containers use, and the functions in them.
//
// A container may map the host's file (mounted into it: the same inode), or have its own copy.
// Whoever makes a container decides what its file system holds, so nothing found there is trusted:
// no link leads out of its root, only regular files are opened, without waiting for a lease, and
// reading is bounded.
//
// It imports internal/cache, internal/memorymap, the standard library and golang.org/x/sys.
package cudafile

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular means that a path leads to no regular file.
var ErrNotRegular = errors.New("not a regular file")

// LeasedError means that a file cannot be opened now, because a process holds a lease on it
// (F_SETLEASE). The kernel has asked for the lease back: try again later.
type LeasedError struct {
	ID   ID
	Path string
}

func (e *LeasedError) Error() string { return "open " + e.Path + ": a process holds a lease on it" }

// ID identifies one state of one file: probes belong to an inode, and to the places of the
// functions in it.
type ID struct {
	Dev, Ino uint64
	Size     int64
	Modified int64 // Unix time, nanoseconds
}

// File is an open file that looks like the driver library by its name.
type File struct {
	ID   ID
	Path string // where it was found, as its root names it; for people
	file *os.File
}

// Close closes the file. Attached probes stay.
func (f *File) Close() error { return f.file.Close() }

// Name is a path at which only this process reaches this inode, whatever happens to Path.
func (f *File) Name() string { return "/proc/self/fd/" + strconv.Itoa(int(f.file.Fd())) }

// openAt opens a path below a root, and follows no link out of it.
func openAt(root *os.File, path string) (*File, error) {
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return reopen(fd, path)
}

// openPath opens a path of this process, magic links of /proc included.
func openPath(name, path string) (*File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return reopen(fd, path)
}

// reopen opens for reading what an O_PATH file descriptor refers to, if it is a regular file:
// opening a pipe would wait, and opening a device may have effects. It does not wait for a lease,
// which would take 45 s (lease-break-time) at each try.
func reopen(fd int, path string) (*File, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	id := ID{Dev: stat.Dev, Ino: stat.Ino, Size: stat.Size, Modified: stat.Mtim.Nano()}
	file, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EAGAIN) {
		return nil, &LeasedError{ID: id, Path: path}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &File{ID: id, Path: strings.TrimSuffix(path, " (deleted)"), file: file}, nil
}

// CloseAll closes files.
func CloseAll(files []*File) {
	for _, f := range files {
		_ = f.Close()
	}
}
