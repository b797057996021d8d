package rm

import (
	"context"
	"time"
)

// Kernel is what a Manager needs of the system. It has few calls, so that a fake resource manager
// can replace it (rmtest) and a Recorder can record them. Implementations MUST be safe for
// concurrent use.
type Kernel interface {
	// Driver returns the version of NVIDIA's driver, such as "580.105.08".
	Driver() (string, error)
	// Uptime returns the time since boot, as field 22 of /proc/PID/stat counts it.
	Uptime() (time.Duration, error)
	// Stat describes a process; ErrGone if there is none.
	Stat(pid int) (Stat, error)
	// Descriptors lists the descriptors of a process that refer to NVIDIA's control device, until ctx
	// ends. ErrUnsupported if it has so many open that it would take too long.
	Descriptors(ctx context.Context, pid int) ([]int, error)
	// Pidfd opens a process.
	Pidfd(pid int) (fd int, err error)
	// Duplicate duplicates a descriptor of the process behind pidfd.
	Duplicate(pidfd, fd int) (dup int, err error)
	// Open opens NVIDIA's control device.
	Open() (fd int, err error)
	// OpenGPU opens the device of a GPU, by UUID: to make objects on a GPU needs that.
	OpenGPU(uuid string) (fd int, err error)
	// Device describes a descriptor of ours.
	Device(fd int) (Device, error)
	// Ioctl calls the resource manager with arg. If params is not empty, it sets the pointer at byte
	// 16 of arg (in both NVOS21 and NVOS54) to params.
	Ioctl(fd int, request uint32, arg, params []byte) error
	// Map maps memory of the driver that was tied to a descriptor of ours, for reading. The driver may
	// write it meanwhile.
	Map(fd, size int) ([]byte, error)
	// Unmap ends what Map returned, which must not be used afterwards.
	Unmap(memory []byte) error
	// Close closes a descriptor of ours.
	Close(fd int) error
}

// Stat is what /proc/PID/stat reports of a process.
type Stat struct {
	Start   uint64 `json:"start"`             // clock ticks since boot
	Exiting bool   `json:"exiting,omitempty"` // PF_EXITING, or a zombie, and so are all of its threads
}

// Device is what a descriptor refers to.
type Device struct {
	Char   bool   `json:"char,omitempty"`   // a character device
	NVIDIA bool   `json:"nvidia,omitempty"` // its major is one of NVIDIA's in /proc/devices
	Major  uint32 `json:"major"`
	Minor  uint32 `json:"minor"`
}

// controlMinor is NV_MINOR_DEVICE_NUMBER_CONTROL_DEVICE of nv-chardev-numbers.h.
const controlMinor = 255

// control reports whether d is /dev/nvidiactl. A tenant can plant any other file there.
func (d Device) control() bool { return d.Char && d.NVIDIA && d.Minor == controlMinor }
