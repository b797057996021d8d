package rmtest

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// nvidiaMajor is the major of NVIDIA's devices.
const nvidiaMajor = 195

func (r *RM) count(name string) func() {
	r.mu.Lock()
	r.calls[name]++
	return r.mu.Unlock
}

// put gives what to a new descriptor of ours.
func (r *RM) put(what any) int {
	fd := 3
	for r.fds[fd] != nil {
		fd++
	}
	r.fds[fd] = what
	return fd
}

// Driver implements rm.Kernel.
func (r *RM) Driver() (string, error) {
	defer r.count("driver")()
	if r.version == "" {
		return "", fs.ErrNotExist
	}
	return r.version, nil
}

// Uptime implements rm.Kernel.
func (r *RM) Uptime() (time.Duration, error) {
	defer r.count("uptime")()
	return r.now, nil
}

// Stat implements rm.Kernel.
func (r *RM) Stat(pid int) (rm.Stat, error) {
	defer r.count("stat")()
	p := r.processes[pid]
	if p == nil {
		return rm.Stat{}, fmt.Errorf("process %d: %w", pid, rm.ErrGone)
	}
	return rm.Stat{Start: p.start, Exiting: p.exiting}, nil
}

// Descriptors implements rm.Kernel. It lists planted files too: a tenant may plant a file between
// the listing and the duplicate.
func (r *RM) Descriptors(_ context.Context, pid int) ([]int, error) {
	defer r.count("descriptors")()
	p := r.processes[pid]
	if p == nil {
		return nil, fmt.Errorf("process %d: %w", pid, rm.ErrGone)
	}
	var fds []int
	for fd := range p.fds {
		fds = append(fds, fd)
	}
	slices.Sort(fds)
	return fds, nil
}

// Pidfd implements rm.Kernel.
func (r *RM) Pidfd(pid int) (int, error) {
	defer r.count("pidfd")()
	p := r.processes[pid]
	if p == nil {
		return -1, fmt.Errorf("process %d: %w", pid, rm.ErrGone)
	}
	return r.put(p), nil
}

// Duplicate implements rm.Kernel.
func (r *RM) Duplicate(pidfd, fd int) (int, error) {
	defer r.count("duplicate")()
	p, ok := r.fds[pidfd].(*Process)
	switch {
	case !ok:
		return -1, syscall.EBADF
	case p.gone:
		return -1, fmt.Errorf("process %d: %w", p.pid, rm.ErrGone)
	case p.fds[fd] == nil:
		return -1, fmt.Errorf("descriptor %d: %w", fd, rm.ErrChanged)
	}
	return r.put(p.fds[fd]), nil
}

// Open implements rm.Kernel.
func (r *RM) Open() (int, error) {
	defer r.count("open")()
	return r.put(&file{clients: map[uint32]*client{}}), nil
}

// OpenGPU implements rm.Kernel.
func (r *RM) OpenGPU(uuid string) (int, error) {
	defer r.count("open gpu")()
	if !slices.Contains(r.gpus, uuid) {
		return -1, fs.ErrNotExist
	}
	return r.put(&gpu{uuid}), nil
}

// Device implements rm.Kernel.
func (r *RM) Device(fd int) (rm.Device, error) {
	defer r.count("device")()
	switch x := r.fds[fd].(type) {
	case *file:
		return rm.Device{Char: true, NVIDIA: true, Major: nvidiaMajor, Minor: 255}, nil
	case *planted:
		return x.device, nil
	}
	return rm.Device{}, syscall.EBADF
}

// Close implements rm.Kernel. A file's clients end with its last descriptor.
func (r *RM) Close(fd int) error {
	defer r.count("close")()
	if r.fds[fd] == nil {
		return syscall.EBADF
	}
	delete(r.fds, fd)
	return nil
}
