package rm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What of the public headers this package uses; each names its header in
// NVIDIA/open-gpu-kernel-modules. All of these structures are the same, byte for
// byte, in the branches below.

// Branches are the driver branches whose headers were read.
var Branches = []string{"535", "550", "570", "580", "595"}

func branchOf(version string) string {
	branch, _, _ := strings.Cut(version, ".")
	return branch
}

func supported(version string, proven []string) error {
	if slices.Contains(Branches, branchOf(version)) || slices.Contains(proven, version) {
		return nil
	}
	return fmt.Errorf("%w: driver %s is of no branch whose structures are known (%s), and no self-test has proven it",
		ErrUnsupported, version, strings.Join(Branches, ", "))
}

// nv_escape.h, nv-ioctl-numbers.h.
const (
	escFree    = 0x29 // NVOS00, 16 bytes
	escControl = 0x2a // NVOS54, 32 bytes
	escAlloc   = 0x2b // NVOS21, 32 bytes
)

// request is _IOWR('F', number, size).
func request(number, size int) uint32 { return 3<<30 | uint32(size)<<16 | 'F'<<8 | uint32(number) }

// Classes: cl0041.h, cl0080.h, cl2080.h, cl208f.h, cl900e.h, cla06c.h.
const (
	classClient    = 0x41
	classDevice    = 0x80
	classSubdevice = 0x2080
	classDiag      = 0x208f
	classMPS       = 0x900e // MPS_COMPUTE of cl900e.h
	classGroup     = 0xa06c
)

// isCompute says whether class is one of a compute engine: cla0c0.h … clcec0.h.
func isCompute(class uint32) bool {
	return class&0xff == 0xc0 && class >= 0xa0c0 && class <= 0xffff
}

// isChannel says whether class is one of a channel: cla06f.h … clca6f.h.
func isChannel(class uint32) bool {
	return class&0xff == 0x6f && class >= 0xa06f && class <= 0xffff
}

// Controls.
const (
	cmdHandleInfo   = 0xd02      // ctrl0000client.h
	cmdGPUIDInfo    = 0x205      // ctrl0000gpu.h, V2
	cmdGID          = 0x2080014a // ctrl2080gpu.h
	cmdGPUID        = 0x20800142 // ctrl2080gpu.h
	cmdDisable      = 0x2080110b // ctrl2080fifo.h
	cmdChannelState = 0x208f0403 // ctrl208ffifo.h
	cmdSetSlice     = 0xa06c0103 // ctrla06c.h
	cmdGetSlice     = 0xa06c0104 // ctrla06c.h
)

// index of NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS.
const (
	indexParent = 1
	indexClass  = 2
)

// Client handles count up within this range and wrap: RS_CLIENT_HANDLE_BASE and
// RS_CLIENT_HANDLE_MAX of resserv.h.
const (
	clientBase = 0xc1d00000
	clientMax  = 0x100000
)

// objectBase is where libcuda's own handles begin; measured, in no header.
const objectBase = 0x5c000000

// maxDisable is NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES.
const maxDisable = 64

// Slices that the resource manager was seen to accept.
const (
	MinSlice = time.Microsecond
	MaxSlice = 100 * time.Second
)

var le = binary.LittleEndian

// nvos00 is NVOS00_PARAMETERS of nvos.h: NV_ESC_RM_FREE.
type nvos00 struct{ Root, Parent, Object, Status uint32 }

// nvos21 is NVOS21_PARAMETERS of nvos.h: NV_ESC_RM_ALLOC.
type nvos21 struct {
	Root, Parent, Object, Class uint32
	Params                      uint64
	Size, Status                uint32
}

// nvos54 is NVOS54_PARAMETERS of nvos.h: NV_ESC_RM_CONTROL.
type nvos54 struct {
	Client, Object, Cmd, Flags uint32
	Params                     uint64
	Size, Status               uint32
}

// handleInfo is NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS of ctrl0000client.h.
type handleInfo struct {
	Object, Index uint32
	Result        uint64 // of a handle, the lower half
}

// gpuIDInfo is NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS of ctrl0000gpu.h.
type gpuIDInfo struct {
	GPU, Flags, Device, Subdevice, SLI, Board, Instance uint32
	NUMA                                                int32
}

// gid is NV2080_CTRL_GPU_GET_GID_INFO_PARAMS of ctrl2080gpu.h; flags 0 ask for text.
type gid struct {
	Index, Flags, Length uint32
	Data                 [256]byte
}

// gpuID is NV2080_CTRL_GPU_GET_ID_PARAMS of ctrl2080gpu.h.
type gpuID struct{ GPU uint32 }

// disable is NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS of ctrl2080fifo.h.
type disable struct {
	Disable                uint8
	_                      [3]byte
	Count                  uint32
	OnlyScheduling, Rewind uint8
	_                      [6]byte
	Event                  uint64 // for kernel clients only
	Clients, Channels      [maxDisable]uint32
}

// channelState is NV208F_CTRL_FIFO_GET_CHANNEL_STATE_PARAMS of ctrl208ffifo.h.
type channelState struct {
	Channel, Client                                                       uint32
	Bound, Enabled, Scheduled, CPUMap, Contention, RunlistSet, DeferredRC uint8
	_                                                                     uint8
}

// timeslice is NVA06C_CTRL_TIMESLICE_PARAMS of ctrla06c.h, in microseconds.
type timeslice struct{ Micros uint64 }

// deviceParams is NV0080_ALLOC_PARAMETERS of cl0080.h.
type deviceParams struct {
	Device, ClientShare, TargetClient, TargetDevice, Flags uint32
	_                                                      uint32
	VASize, VAStart, VALimit                               uint64
	VAMode                                                 uint32
	_                                                      uint32
}

// subdeviceParams is NV2080_ALLOC_PARAMETERS of cl2080.h.
type subdeviceParams struct{ Subdevice uint32 }
