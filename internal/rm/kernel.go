package rm

import "time"

// Kernel is what a Manager asks of the system: few calls, so that a fake resource
// manager can stand in (rmtest), and a Recorder can write down each of them.
// Implementations may be called by several goroutines.
type Kernel interface {
	// Driver is the version of NVIDIA's driver, as "580.105.08".
	Driver() (string, error)
	// Uptime is the time since boot, as field 22 of /proc/PID/stat counts it.
	Uptime() (time.Duration, error)
	// Stat describes a process; ErrGone if there is none.
	Stat(pid int) (Stat, error)
	// Descriptors lists the descriptors of a process that are NVIDIA's control device.
	Descriptors(pid int) ([]int, error)
	// Pidfd opens a process.
	Pidfd(pid int) (fd int, err error)
	// Duplicate takes a duplicate of a descriptor of the process that pidfd stands for.
	Duplicate(pidfd, fd int) (dup int, err error)
	// Open opens NVIDIA's control device.
	Open() (fd int, err error)
	// OpenGPU opens the device of a GPU, by UUID: who makes objects on a GPU has it open.
	OpenGPU(uuid string) (fd int, err error)
	// Device says what a descriptor of ours is.
	Device(fd int) (Device, error)
	// Ioctl calls the resource manager with arg. Where params has content, the pointer
	// that both NVOS21 and NVOS54 have at byte 16 of arg is made to point to it.
	Ioctl(fd int, request uint32, arg, params []byte) error
	// Close closes a descriptor of ours.
	Close(fd int) error
}

// Stat is what /proc/PID/stat says of a process.
type Stat struct {
	Start   uint64 `json:"start"`             // clock ticks since boot
	Exiting bool   `json:"exiting,omitempty"` // PF_EXITING, or a zombie
}

// Device is what a descriptor stands for.
type Device struct {
	Char   bool   `json:"char,omitempty"`   // a character device
	NVIDIA bool   `json:"nvidia,omitempty"` // its major is one of NVIDIA's in /proc/devices
	Major  uint32 `json:"major"`
	Minor  uint32 `json:"minor"`
}

// controlMinor is NV_MINOR_DEVICE_NUMBER_CONTROL_DEVICE of nv-chardev-numbers.h.
const controlMinor = 255

// control says whether d is /dev/nvidiactl. A tenant can plant anything in its place.
func (d Device) control() bool { return d.Char && d.NVIDIA && d.Minor == controlMinor }
