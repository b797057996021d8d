package rmtest

import (
	"encoding/binary"
	"slices"
	"syscall"
)

// Statuses, by nvstatuscodes.h.
const (
	StatusInvalidClient           = 0x23
	StatusInsufficientPermissions = 0x1b
	StatusInvalidClass            = 0x22
	StatusInvalidObjectHandle     = 0x33
	StatusInvalidParamStruct      = 0x3a
	StatusInvalidState            = 0x40
	StatusNotSupported            = 0x56
	StatusObjectNotFound          = 0x57
)

// Call is an ioctl that a hook sees.
type Call struct {
	Alloc          bool
	Client, Object uint32
	Cmd            uint32 // of a control; of an allocation, the class
	Params         []byte
	Status         uint32        // set by a hook: the call is refused with it
	Errno          syscall.Errno // set by a hook: the call fails with it
}

// Commands, for hooks.
const (
	CmdHandleInfo   = 0xd02
	CmdGPUIDInfo    = 0x205
	CmdGID          = 0x2080014a
	CmdGPUID        = 0x20800142
	CmdDisable      = 0x2080110b
	CmdChannelState = 0x208f0403
	CmdSetSlice     = 0xa06c0103
	CmdGetSlice     = 0xa06c0104
)

// sizes of parameters, from the headers of 535 to 595.
var sizes = map[uint32]int{
	CmdHandleInfo: 16, CmdGPUIDInfo: 32, CmdGID: 268, CmdGPUID: 4, CmdDisable: 536,
	CmdChannelState: 16, CmdSetSlice: 8, CmdGetSlice: 8,
	CmdUUIDInfo: 272, CmdTraceSwitches: 24, CmdEnableEvents: 8, CmdFlushEvents: 0,
}

// needs are the classes of the objects that the commands are for.
var needs = map[uint32]uint32{
	CmdHandleInfo: classClient, CmdGPUIDInfo: classClient, CmdGID: classSubdevice, CmdGPUID: classSubdevice,
	CmdDisable: classSubdevice, CmdChannelState: classDiag, CmdSetSlice: classGroup, CmdGetSlice: classGroup,
	CmdUUIDInfo: classClient, CmdTraceSwitches: classSubdevice, CmdEnableEvents: classEventBuffer, CmdFlushEvents: classEventBuffer,
}

const (
	requestFree    = 0xc0104629
	requestAlloc   = 0xc020462b
	requestControl = 0xc020462a
)

var le = binary.LittleEndian

// Ioctl implements rm.Kernel.
func (r *RM) Ioctl(fd int, request uint32, arg, params []byte) error {
	r.mu.Lock()
	r.calls["ioctl"]++
	f, ok := r.fds[fd].(*file)
	hook := r.hook
	r.mu.Unlock()
	if !ok {
		return syscall.ENOTTY
	}
	var c *Call
	switch {
	case request == requestMap && len(arg) == 56:
		r.mu.Lock()
		defer r.mu.Unlock()
		le.PutUint32(arg[40:], r.mapMemory(f, arg))
		return nil
	case request == requestFree && len(arg) == 16:
		r.mu.Lock()
		defer r.mu.Unlock()
		if own := f.clients[le.Uint32(arg)]; own == nil || own.objects[le.Uint32(arg[8:])] == nil {
			le.PutUint32(arg[12:], StatusInvalidObjectHandle)
		} else {
			delete(r.buffers, own.objects[le.Uint32(arg[8:])].trace)
			delete(own.objects, le.Uint32(arg[8:]))
		}
		return nil
	case request == requestControl && len(arg) == 32:
		c = &Call{Client: le.Uint32(arg), Object: le.Uint32(arg[4:]), Cmd: le.Uint32(arg[8:])}
		if int(le.Uint32(arg[24:])) != len(params) || len(params) != sizes[c.Cmd] {
			c.Status = StatusInvalidParamStruct
		}
	case request == requestAlloc && len(arg) == 32:
		c = &Call{Alloc: true, Client: le.Uint32(arg), Object: le.Uint32(arg[4:]), Cmd: le.Uint32(arg[12:])}
		if int(le.Uint32(arg[24:])) != len(params) {
			c.Status = StatusInvalidParamStruct
		}
	default:
		return syscall.EINVAL
	}
	c.Params = params
	if hook != nil {
		hook(c)
	}
	if c.Errno != 0 {
		return c.Errno
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case c.Status != 0:
	case c.Alloc:
		var h uint32
		h, c.Status = r.alloc(f, c, params)
		le.PutUint32(arg[8:], h)
	default:
		c.Status = r.control(f, c, params)
	}
	le.PutUint32(arg[28:], c.Status)
	return nil
}

func (r *RM) alloc(f *file, c *Call, params []byte) (handle, status uint32) {
	if c.Cmd == classClient {
		return r.newClient(f), 0
	}
	own := f.clients[c.Client]
	if own == nil {
		return 0, StatusInvalidClient
	}
	parent := own.objects[c.Object]
	if parent != nil && (c.Cmd == classDeviceless || c.Cmd == classEventBuffer) {
		return r.allocTrace(own, c, params)
	}
	want := map[uint32]int{classDevice: 56, classSubdevice: 4, classDiag: 0}
	size, known := want[c.Cmd]
	switch {
	case parent == nil:
		return 0, StatusInvalidObjectHandle
	case !known:
		return 0, StatusInvalidClass
	case len(params) != size:
		return 0, StatusInvalidParamStruct
	}
	on := parent.gpu
	if c.Cmd == classDevice {
		switch on = int(le.Uint32(params)); {
		case on >= len(r.gpus):
			return 0, StatusInvalidParamStruct
		case !r.openGPU(r.gpus[on]):
			return 0, StatusInsufficientPermissions
		}
	}
	return own.add(c.Cmd, c.Object, on), 0
}

func (r *RM) openGPU(uuid string) bool {
	for _, x := range r.fds {
		if g, ok := x.(*gpu); ok && g.uuid == uuid {
			return true
		}
	}
	return false
}

func (r *RM) control(f *file, c *Call, params []byte) (status uint32) {
	own := f.clients[c.Client]
	if own == nil {
		if r.client(c.Client) != nil {
			return StatusInvalidClient // of another file
		}
		return StatusInvalidObjectHandle
	}
	o := own.objects[c.Object]
	if o == nil {
		return StatusObjectNotFound
	}
	if needs[c.Cmd] != o.class {
		return StatusNotSupported
	}
	switch c.Cmd {
	case CmdHandleInfo:
		about := own.objects[le.Uint32(params)]
		if about == nil {
			return StatusObjectNotFound
		}
		le.PutUint64(params[8:], uint64([]uint32{1: about.parent, 2: about.class}[le.Uint32(params[4:])]))
	case CmdGPUIDInfo:
		le.PutUint32(params[8:], le.Uint32(params)>>8-1)
	case CmdGID:
		le.PutUint32(params[8:], uint32(len(r.gpus[o.gpu])+1))
		copy(params[12:], r.gpus[o.gpu])
	case CmdGPUID:
		le.PutUint32(params, uint32(o.gpu+1)<<8)
	case CmdUUIDInfo, CmdTraceSwitches, CmdEnableEvents, CmdFlushEvents:
		return r.controlTrace(own, o, c, params)
	case CmdSetSlice:
		o.slice = le.Uint64(params)
	case CmdGetSlice:
		le.PutUint64(params, o.slice)
	case CmdDisable:
		return r.disable(params)
	case CmdChannelState:
		client := r.client(le.Uint32(params[4:]))
		if client == nil || client.objects[le.Uint32(params)] == nil {
			return StatusObjectNotFound
		}
		channel := client.objects[le.Uint32(params)]
		copy(params[8:], []byte{1, 1, 1, 0, 0, 1, 0})
		if channel.off {
			params[9] = 0
		}
	}
	return 0
}

// disable refuses the whole call if one channel does not exist.
func (r *RM) disable(params []byte) (status uint32) {
	off, n := params[0] != 0, int(le.Uint32(params[4:]))
	if n > 64 || slices.Max(params[10:24]) != 0 {
		return StatusInvalidParamStruct
	}
	var all []*object
	for i := range n {
		client := r.client(le.Uint32(params[24+4*i:]))
		if client == nil {
			return StatusInvalidClient
		}
		channel := client.objects[le.Uint32(params[24+256+4*i:])]
		if channel == nil || channel.class != classChannel {
			return StatusInvalidObjectHandle
		}
		all = append(all, channel)
	}
	for _, channel := range all {
		channel.off = off
	}
	return 0
}
