package rmtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// Replay is a Kernel that answers from a transcript of an rm.Recorder. A call gets the answers that
// the same call got there, in their order, and then the last one again. A call that is not in the
// transcript fails.
type Replay struct {
	mu      sync.Mutex
	answers map[string][]rm.Record
	Process rm.Process // the first process that was looked at
}

// ReadTranscript reads a transcript.
func ReadTranscript(from io.Reader) (*Replay, error) {
	r := &Replay{answers: map[string][]rm.Record{}}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var rec rm.Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("transcript: %w", err)
		}
		if rec.Call == "stat" && r.Process.PID == 0 && rec.Stat != nil {
			r.Process = rm.Process{PID: rec.PID, Start: rec.Stat.Start}
		}
		key := key(rec)
		r.answers[key] = append(r.answers[key], rec)
	}
	return r, lines.Err()
}

// Has says whether the transcript has a call of this name.
func (r *Replay) Has(call string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.answers {
		if all[0].Call == call {
			return true
		}
	}
	return false
}

func key(rec rm.Record) string {
	return fmt.Sprintf("%s %d %d %d %#x %x %x", rec.Call, rec.PID, rec.FD, rec.Of, rec.Request, rec.In, rec.PIn)
}

func (r *Replay) answer(rec rm.Record) (rm.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := key(rec)
	all := r.answers[key]
	if len(all) == 0 {
		return rec, fmt.Errorf("not in the transcript: %+v", rec)
	}
	if len(all) > 1 {
		r.answers[key] = all[1:]
	}
	got := all[0]
	switch {
	case got.Gone:
		return got, fmt.Errorf("%s: %w", got.Err, rm.ErrGone)
	case got.Changed:
		return got, fmt.Errorf("%s: %w", got.Err, rm.ErrChanged)
	case got.Errno != 0:
		return got, syscall.Errno(got.Errno)
	case got.Err != "":
		return got, fmt.Errorf("%s", got.Err)
	}
	return got, nil
}

// Driver implements rm.Kernel.
func (r *Replay) Driver() (string, error) {
	rec, err := r.answer(rm.Record{Call: "driver"})
	return rec.Text, err
}

// Uptime implements rm.Kernel.
func (r *Replay) Uptime() (time.Duration, error) {
	rec, err := r.answer(rm.Record{Call: "uptime"})
	return time.Duration(rec.Int), err
}

// Stat implements rm.Kernel.
func (r *Replay) Stat(pid int) (rm.Stat, error) {
	rec, err := r.answer(rm.Record{Call: "stat", PID: pid})
	if rec.Stat == nil {
		return rm.Stat{}, err
	}
	return *rec.Stat, err
}

// Descriptors implements rm.Kernel.
func (r *Replay) Descriptors(_ context.Context, pid int) ([]int, error) {
	rec, err := r.answer(rm.Record{Call: "descriptors", PID: pid})
	return rec.FDs, err
}

// Pidfd implements rm.Kernel.
func (r *Replay) Pidfd(pid int) (int, error) {
	rec, err := r.answer(rm.Record{Call: "pidfd", PID: pid})
	return rec.Int, err
}

// Duplicate implements rm.Kernel.
func (r *Replay) Duplicate(pidfd, fd int) (int, error) {
	rec, err := r.answer(rm.Record{Call: "duplicate", FD: pidfd, Of: fd})
	return rec.Int, err
}

// Open implements rm.Kernel.
func (r *Replay) Open() (int, error) {
	rec, err := r.answer(rm.Record{Call: "open"})
	return rec.Int, err
}

// OpenGPU implements rm.Kernel.
func (r *Replay) OpenGPU(uuid string) (int, error) {
	rec, err := r.answer(rm.Record{Call: "open gpu", Text: uuid})
	return rec.Int, err
}

// Device implements rm.Kernel.
func (r *Replay) Device(fd int) (rm.Device, error) {
	rec, err := r.answer(rm.Record{Call: "device", FD: fd})
	if rec.Device == nil {
		return rm.Device{}, err
	}
	return *rec.Device, err
}

// Ioctl implements rm.Kernel.
func (r *Replay) Ioctl(fd int, request uint32, arg, params []byte) error {
	rec, err := r.answer(rm.Record{Call: "ioctl", FD: fd, Request: request, In: bytes.Clone(arg), PIn: bytes.Clone(params)})
	if rec.Out != nil {
		copy(arg, rec.Out)
	}
	if rec.POut != nil {
		copy(params, rec.POut)
	}
	return err
}

// Close implements rm.Kernel.
func (r *Replay) Close(fd int) error {
	_, err := r.answer(rm.Record{Call: "close", FD: fd})
	return err
}

// Map implements rm.Kernel. A transcript has no memory.
func (r *Replay) Map(fd, size int) ([]byte, error) {
	if _, err := r.answer(rm.Record{Call: "map", FD: fd, Int: size}); err != nil {
		return nil, err
	}
	return make([]byte, size), nil
}

// Unmap implements rm.Kernel.
func (r *Replay) Unmap([]byte) error {
	_, err := r.answer(rm.Record{Call: "unmap"})
	return err
}
