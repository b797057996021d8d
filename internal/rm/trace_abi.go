package rm

// What the trace of context switches uses of the public headers. The structures are the same in all of
// Branches, but for the one that memorySize is about.

const escMapMemory = 0x4e // NVOS33 with a descriptor, 56 bytes: nv_escape.h

// Classes: cl90ce.h, cl90cd.h.
const (
	classDeviceless  = 0x90ce // NV01_MEMORY_DEVICELESS
	classEventBuffer = 0x90cd
)

// Controls.
const (
	cmdUUIDInfo      = 0x274      // ctrl0000gpu.h
	cmdEnableEvents  = 0x90cd0101 // ctrl90cd.h
	cmdFlushEvents   = 0x90cd0104 // ctrl90cd.h
	cmdTraceSwitches = 0x20801238 // ctrl2080gr.h: NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2
)

const (
	keepNewest       = 2         // NV_EVENT_BUFFER_FLAG_OVERFLOW_POLICY_KEEP_NEWEST
	detailSimple     = 1         // NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE: each context's start and end
	typeSwitch       = 2         // NV_EVENT_BUFFER_RECORD_TYPE_FECS_CTX_SWITCH_V2
	tagOn            = 6         // NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START
	tagOff           = 7         // NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_END
	kernelPID        = 1<<32 - 1 // NV_EVENT_BUFFER_KERNEL_PID of cl90cdfecs.h
	attrCachedPCI    = 1<<29 | 1<<25
	attrUserReadOnly = 1 << 22
	mapReadOnly      = 1 // NVOS33_FLAGS_ACCESS_READ_ONLY
)

// memoryParams is NV_MEMORY_ALLOCATION_PARAMS of nvos.h.
type memoryParams struct {
	Owner, Type, Flags, Width, Height, Pitch, Attr, Attr2, Format, Compr, Zcull, _ uint32
	RangeLo, RangeHi, Size, Alignment, Offset, Limit, Address                      uint64
	Ctag, VASpace, Internal, Tag                                                   uint32
	Node, _                                                                        uint32 // not in 535
}

// memorySize is the size of memoryParams in a branch.
func memorySize(branch string) int {
	if branch == "535" {
		return 120
	}
	return 128
}

// bufferParams is NV_EVENT_BUFFER_ALLOC_PARAMETERS of cl90cd.h.
type bufferParams struct {
	Header, Records             uint64
	RecordSize, RecordCount     uint32
	Vardata                     uint64
	VardataSize, FreeThreshold  uint32
	Notify                      uint64
	VardataThreshold, Subdevice uint32
	Flags                       uint32
	HeaderMemory, RecordMemory  uint32
	VardataMemory               uint32
}

// traceParams is NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS of ctrl2080gr.h.
type traceParams struct {
	Buffer, RecordSize, Detail, Filter uint32
	AllUsers                           uint8
	_                                  [3]byte
	Reason                             uint32
}

// enableParams is NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS of ctrl90cd.h.
type enableParams struct {
	Enable uint8
	_      [3]byte
	Flags  uint32
}

// mapParams is nv_ioctl_nvos33_parameters_with_fd of nv-unix-nvos-params-wrappers.h.
type mapParams struct {
	Client, Device, Memory, _ uint32
	Offset, Length, Address   uint64
	Status, Flags             uint32
	FD                        int32
	_                         uint32
}

// uuidInfo is NV0000_CTRL_GPU_GET_UUID_INFO_PARAMS of ctrl0000gpu.h; flags 0 are for text.
type uuidInfo struct {
	UUID                          [256]byte
	Flags, GPU, Device, Subdevice uint32
}
