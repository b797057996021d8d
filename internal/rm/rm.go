// Package rm speaks to NVIDIA's resource manager.
//
// It imports the standard library only.
package rm

// Process is one process, whatever becomes of its PID.
type Process struct {
	PID   int
	Start uint64 // field 22 of /proc/PID/stat, in clock ticks since boot
}

// Group is a channel group of a process on one GPU.
type Group struct {
	Process
	GPU       string // UUID
	FD        int    // the process's descriptor that the client belongs to
	Client    uint32
	Subdevice uint32
	Handle    uint32
	Class     uint32
	Channels  []uint32
}
