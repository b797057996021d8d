package rm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Record is one call of a Kernel, as a Recorder writes it: one line of JSON.
type Record struct {
	Call    string        `json:"call"`
	PID     int           `json:"pid,omitempty"`
	FD      int           `json:"fd,omitempty"`  // the descriptor of the call
	Of      int           `json:"of,omitempty"`  // the other process's descriptor
	Request uint32        `json:"req,omitempty"` // of an ioctl
	In      []byte        `json:"in,omitempty"`  // the argument before the call
	Out     []byte        `json:"out,omitempty"` // and after it, if it differs
	PIn     []byte        `json:"pin,omitempty"` // the parameters that it points to, before
	POut    []byte        `json:"pout,omitempty"`
	Int     int           `json:"int,omitempty"` // what the call returned
	FDs     []int         `json:"fds,omitempty"`
	Text    string        `json:"text,omitempty"`
	Stat    *Stat         `json:"stat,omitempty"`
	Device  *Device       `json:"device,omitempty"`
	Errno   uintptr       `json:"errno,omitempty"`
	Gone    bool          `json:"gone,omitempty"`
	Changed bool          `json:"changed,omitempty"`
	Err     string        `json:"err,omitempty"`
	Took    time.Duration `json:"ns"`
}

// Recorder passes calls to a Kernel, and records each.
type Recorder struct {
	kernel Kernel

	mu  sync.Mutex
	enc *json.Encoder
	err error
}

// NewRecorder returns a Recorder of kernel that writes lines of JSON to w.
func NewRecorder(kernel Kernel, w io.Writer) *Recorder {
	return &Recorder{kernel: kernel, enc: json.NewEncoder(w)}
}

// Err returns the first error of writing.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *Recorder) write(began time.Time, rec Record, err error) {
	rec.Took = time.Since(began)
	if err != nil {
		rec.Err = err.Error()
		rec.Gone, rec.Changed = errors.Is(err, ErrGone), errors.Is(err, ErrChanged)
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			rec.Errno = uintptr(errno)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enc.Encode(rec); err != nil && r.err == nil {
		r.err = err
	}
}

// Driver implements Kernel.
func (r *Recorder) Driver() (string, error) {
	began := time.Now()
	v, err := r.kernel.Driver()
	r.write(began, Record{Call: "driver", Text: v}, err)
	return v, err
}

// Uptime implements Kernel.
func (r *Recorder) Uptime() (time.Duration, error) {
	began := time.Now()
	v, err := r.kernel.Uptime()
	r.write(began, Record{Call: "uptime", Int: int(v)}, err)
	return v, err
}

// Stat implements Kernel.
func (r *Recorder) Stat(pid int) (Stat, error) {
	began := time.Now()
	v, err := r.kernel.Stat(pid)
	r.write(began, Record{Call: "stat", PID: pid, Stat: &v}, err)
	return v, err
}

// Descriptors implements Kernel.
func (r *Recorder) Descriptors(ctx context.Context, pid int) ([]int, error) {
	began := time.Now()
	v, err := r.kernel.Descriptors(ctx, pid)
	r.write(began, Record{Call: "descriptors", PID: pid, FDs: v}, err)
	return v, err
}

// Pidfd implements Kernel.
func (r *Recorder) Pidfd(pid int) (int, error) {
	began := time.Now()
	v, err := r.kernel.Pidfd(pid)
	r.write(began, Record{Call: "pidfd", PID: pid, Int: v}, err)
	return v, err
}

// Duplicate implements Kernel.
func (r *Recorder) Duplicate(pidfd, fd int) (int, error) {
	began := time.Now()
	v, err := r.kernel.Duplicate(pidfd, fd)
	r.write(began, Record{Call: "duplicate", FD: pidfd, Of: fd, Int: v}, err)
	return v, err
}

// Open implements Kernel.
func (r *Recorder) Open() (int, error) {
	began := time.Now()
	v, err := r.kernel.Open()
	r.write(began, Record{Call: "open", Int: v}, err)
	return v, err
}

// OpenGPU implements Kernel.
func (r *Recorder) OpenGPU(uuid string) (int, error) {
	began := time.Now()
	v, err := r.kernel.OpenGPU(uuid)
	r.write(began, Record{Call: "open gpu", Text: uuid, Int: v}, err)
	return v, err
}

// Device implements Kernel.
func (r *Recorder) Device(fd int) (Device, error) {
	began := time.Now()
	v, err := r.kernel.Device(fd)
	r.write(began, Record{Call: "device", FD: fd, Device: &v}, err)
	return v, err
}

// Ioctl implements Kernel.
func (r *Recorder) Ioctl(fd int, request uint32, arg, params []byte) error {
	rec := Record{Call: "ioctl", FD: fd, Request: request, In: slices.Clone(arg), PIn: slices.Clone(params)}
	began := time.Now()
	err := r.kernel.Ioctl(fd, request, arg, params)
	if !slices.Equal(arg, rec.In) {
		rec.Out = slices.Clone(arg)
	}
	if !slices.Equal(params, rec.PIn) {
		rec.POut = slices.Clone(params)
	}
	r.write(began, rec, err)
	return err
}

// Close implements Kernel.
func (r *Recorder) Close(fd int) error {
	began := time.Now()
	err := r.kernel.Close(fd)
	r.write(began, Record{Call: "close", FD: fd}, err)
	return err
}

// Map implements Kernel. What the memory holds is not recorded.
func (r *Recorder) Map(fd, size int) ([]byte, error) {
	began := time.Now()
	v, err := r.kernel.Map(fd, size)
	r.write(began, Record{Call: "map", FD: fd, Int: size}, err)
	return v, err
}

// Unmap implements Kernel.
func (r *Recorder) Unmap(memory []byte) error {
	began := time.Now()
	err := r.kernel.Unmap(memory)
	r.write(began, Record{Call: "unmap"}, err)
	return err
}
