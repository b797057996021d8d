package rm

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// passing is a kernel whose processes have the device open, and end when told.
type passing struct {
	Kernel
	alive map[int]bool
	next  uint32
}

func (k *passing) Driver() (string, error)                         { return "580.1", nil }
func (k *passing) Open() (int, error)                              { return 3, nil }
func (k *passing) Close(int) error                                 { return nil }
func (k *passing) Pidfd(int) (int, error)                          { return 4, nil }
func (k *passing) Duplicate(int, int) (int, error)                 { return 5, nil }
func (k *passing) Descriptors(context.Context, int) ([]int, error) { return []int{9}, nil }
func (k *passing) Uptime() (time.Duration, error) {
	return time.Hour + time.Duration(k.next)*time.Millisecond, nil
}
func (k *passing) Device(int) (Device, error) {
	return Device{Char: true, NVIDIA: true, Minor: controlMinor}, nil
}

func (k *passing) Stat(pid int) (Stat, error) {
	if !k.alive[pid] {
		return Stat{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	return Stat{Start: uint64(2 * time.Hour / tick)}, nil
}

func (k *passing) Ioctl(_ int, req uint32, arg, _ []byte) error {
	if req == request(escAlloc, 32) {
		k.next++
		le.PutUint32(arg[8:], clientBase+k.next)
		return nil
	}
	le.PutUint32(arg[28:], uint32(statusInvalidClient))
	return nil
}

func TestProcessesThatEndedAreForgotten(t *testing.T) {
	k := &passing{alive: map[int]bool{}}
	m := New(k, Options{Timeout: time.Minute})
	if err := m.Mark(t.Context()); err != nil {
		t.Fatal(err)
	}
	for pid := range 10 * maxSearches {
		k.alive[pid] = true
		if _, err := m.Find(t.Context(), Process{pid, uint64(2 * time.Hour / tick)}); err != nil {
			t.Fatal(err)
		}
		delete(k.alive, pid-3) // it ended, and nobody asks for it again
	}
	if n := len(m.searches); n > maxSearches+3 {
		t.Errorf("%d processes are known, of which 3 live", n)
	}
	if n := len(m.marks); n > maxMarks {
		t.Errorf("%d marks are kept", n)
	}
}
