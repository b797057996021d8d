package rmtest

import "syscall"

const (
	classDeviceless  = 0x90ce
	classEventBuffer = 0x90cd

	requestMap = 0xc038464e // NVOS33 with a descriptor

	traceRecordSize = 32
)

// Commands of a trace, for hooks.
const (
	CmdUUIDInfo      = 0x274
	CmdEnableEvents  = 0x90cd0101
	CmdFlushEvents   = 0x90cd0104
	CmdTraceSwitches = 0x20801238
)

// trace is an event buffer.
type trace struct {
	header, records []byte
	gpu             int
	count           uint32
	bound, enabled  bool
	seqno           uint16
}

// Switched adds a context switch of a GPU, by its place in New, to all traces of it.
func (r *RM) Switched(gpu int, at uint64, pid uint32, on bool) {
	r.lock(func() {
		for _, b := range r.tracing(gpu) {
			put := le.Uint32(b.header[4:]) // as the driver: a new buffer over old memory goes on there
			record := b.records[put*traceRecordSize:][:traceRecordSize]
			clear(record)
			le.PutUint16(record, 2)
			record[8] = 7
			if on {
				record[8] = 6
			}
			le.PutUint16(record[10:], b.seqno)
			le.PutUint32(record[16:], pid)
			le.PutUint64(record[24:], at)
			b.seqno++
			le.PutUint32(b.header[4:], (put+1)%b.count)
		}
	})
}

// LoseSwitches makes n switches of a GPU come too fast for the driver.
func (r *RM) LoseSwitches(gpu, n int) {
	r.lock(func() {
		for _, b := range r.tracing(gpu) {
			b.seqno += uint16(n)
		}
	})
}

// tracing are the buffers that switches of a GPU are written to.
func (r *RM) tracing(gpu int) (all []*trace) {
	for b := range r.buffers {
		if b.enabled && b.gpu == gpu {
			all = append(all, b)
		}
	}
	return all
}

// Traces counts the traces that are on, of clients that exist.
func (r *RM) Traces() (n int) {
	r.lock(func() {
		for f := range r.files() {
			for _, c := range f.clients {
				for _, o := range c.objects {
					if o.trace != nil && o.trace.enabled {
						n++
					}
				}
			}
		}
	})
	return n
}

// Map implements rm.Kernel.
func (r *RM) Map(fd, size int) ([]byte, error) {
	defer r.count("map")()
	f, ok := r.fds[fd].(*file)
	if !ok || len(f.memory) < size {
		return nil, syscall.EINVAL
	}
	return f.memory[:size], nil
}

// Unmap implements rm.Kernel.
func (r *RM) Unmap([]byte) error {
	defer r.count("unmap")()
	return nil
}

// mapMemory ties memory of a client to another descriptor.
func (r *RM) mapMemory(f *file, arg []byte) (status uint32) {
	own := f.clients[le.Uint32(arg)]
	if own == nil {
		return StatusInvalidClient
	}
	o := own.objects[le.Uint32(arg[8:])]
	other, ok := r.fds[int(le.Uint32(arg[48:]))].(*file)
	if o == nil || o.memory == nil || !ok {
		return StatusInvalidObjectHandle
	}
	other.memory = o.memory
	return 0
}

// allocTrace makes memory, or an event buffer over two pieces of it.
func (r *RM) allocTrace(own *client, c *Call, params []byte) (handle, status uint32) {
	if c.Cmd == classDeviceless {
		if want := map[bool]int{true: 120, false: 128}[len(r.version) > 3 && r.version[:3] == "535"]; len(params) != want {
			return 0, StatusInvalidParamStruct
		}
		handle = own.add(c.Cmd, c.Object, 0)
		own.objects[handle].memory = make([]byte, le.Uint64(params[64:]))
		return handle, 0
	}
	if len(params) != 72 || le.Uint32(params[16:]) != traceRecordSize {
		return 0, StatusInvalidParamStruct
	}
	on, header, records := own.objects[le.Uint32(params[52:])], own.objects[le.Uint32(params[60:])], own.objects[le.Uint32(params[64:])]
	count := le.Uint32(params[20:])
	if on == nil || header == nil || records == nil || len(records.memory) < int(count)*traceRecordSize {
		return 0, StatusInvalidObjectHandle
	}
	handle = own.add(c.Cmd, c.Object, on.gpu)
	b := &trace{header: header.memory, records: records.memory, gpu: on.gpu, count: count}
	own.objects[handle].trace, r.buffers[b] = b, true
	return handle, 0
}

func (r *RM) controlTrace(own *client, o *object, c *Call, params []byte) (status uint32) {
	switch c.Cmd {
	case CmdUUIDInfo:
		for i, uuid := range r.gpus {
			if string(params[:len(uuid)]) == uuid && params[len(uuid)] == 0 {
				le.PutUint32(params[260:], uint32(i+1)<<8)
				le.PutUint32(params[264:], uint32(i))
				return 0
			}
		}
		return StatusObjectNotFound
	case CmdTraceSwitches:
		b := own.objects[le.Uint32(params)]
		if b == nil || b.trace == nil || le.Uint32(params[4:]) != traceRecordSize-8 || params[16] != 1 {
			return StatusInvalidObjectHandle
		}
		b.trace.bound = true
	case CmdEnableEvents:
		if !o.trace.bound || le.Uint32(params[4:]) != 2 {
			return StatusInvalidState
		}
		o.trace.enabled = params[0] != 0
	}
	return 0
}
