// Package rm controls, from outside, the channel groups of other processes
// through NVIDIA's resource manager.
//
// It imports the standard library only.
package rm

import "errors"

// What the callers tell apart.
var (
	// ErrGone: the process ended, is about to, or its PID belongs to another one.
	ErrGone = errors.New("the process is gone")
	// ErrChanged: an object is not what the group says. Find it again.
	ErrChanged = errors.New("the channel group has changed")
)

// Process is one process: a PID alone may be used again.
type Process struct {
	PID   int
	Start uint64 // field 22 of /proc/PID/stat: clock ticks since boot
}

// Group is a compute channel group of a process on one GPU.
type Group struct {
	Process
	GPU       string // UUID
	FD        int    // the process's descriptor of /dev/nvidiactl
	Client    uint32
	Subdevice uint32
	Handle    uint32
	Class     uint32 // of the group
	Channels  []uint32
}
