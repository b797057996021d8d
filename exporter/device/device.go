// Package device has what Laxity needs to know about the GPUs of one node: each card (or MIG
// instance), its memory, how busy it is, and the processes that hold a compute context on it.
//
// Adapters are named by technology: nvml (real GPUs) and sim (the simulated
// GPU). devicetest holds the conformance suite that every adapter runs. This
// package imports the standard library only.
package device

import (
	"context"
	"errors"
	"time"
)

// ErrUnavailable means that this machine or this build has no such device: no driver, no GPU,
// built without cgo. It is no bug. The wrapped text says what to do.
var ErrUnavailable = errors.New("GPU device unavailable")

// Device reads the GPUs of one node. Implementations MUST be safe for use by
// one goroutine at a time; they need not be safe for concurrent use.
type Device interface {
	// Read returns the present state of every GPU.
	//
	// It MUST NOT report a GPU as having no processes because the query failed: it sets
	// GPU.ProcessesErr instead. A GPU that does not answer MUST stay in the Reading while
	// others do, so that its tasks do not count as ended. A card in MIG mode MUST NOT be
	// listed beside its instances. It MUST return an error, and no Reading, when the device
	// as a whole does not answer. After an error a later Read MUST try again from the
	// beginning (a driver may have been reloaded in between). It need not return when ctx
	// ends while a driver call hangs; callers use WithTimeout.
	Read(ctx context.Context) (Reading, error)
	// Close releases the driver. Afterwards Read MUST return an error, and a second Close
	// MUST do nothing.
	Close() error
}

// Reading is the state of a Device at one moment.
type Reading struct {
	Time time.Time // when the reading began
	GPUs []GPU     // by index
}

// GPU is the state of one GPU or MIG instance.
type GPU struct {
	UUID   string
	Index  int    // the driver's index; a MIG instance has its card's
	Parent string // UUID of the card, for a MIG instance; otherwise empty
	Name   string
	Driver string // driver version
	// Exclusive: its compute mode is not the default, so one process may exclude others.
	Exclusive bool
	// MemoryTotal and MemoryUsed are bytes, without the memory that the driver keeps for
	// itself. Both are 0 where the GPU does not answer at all (it fell off the bus). Then
	// ProcessesErr is set too, and only the identity above is valid.
	MemoryTotal, MemoryUsed uint64
	// Utilization is the share of the driver's last sample period in which a kernel ran, 0–1;
	// NaN where the driver does not report it.
	Utilization float64
	// Processes hold a compute context on this GPU, clients of an MPS server among them, each once.
	// The server itself is among them as a process like others. Valid only when
	// ProcessesErr is nil.
	Processes    []Process
	ProcessesErr error
	// TellsMPS: Process.MPS is known. Without it a client of an MPS server looks like others, or is absent.
	TellsMPS bool
}

// Process is one process that holds a compute context on a GPU.
type Process struct {
	PID int // in the host's PID namespace
	// MemoryUsed is bytes, its context included; 0 where the driver does not report it.
	MemoryUsed uint64
	// SMUtilization is its share of the multiprocessors' time over the driver's
	// last samples, 0–1; NaN where not known. Refreshed at most once a second.
	SMUtilization float64
	// MPS: it is a client of an MPS server, which owns the channels on which it computes.
	MPS bool
}
