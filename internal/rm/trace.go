package rm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Trace is the driver's trace of context switches on one GPU: whose context came onto it, or left it,
// and when. Profilers use the same. It controls nothing, and other traces may be open beside it. It needs
// CAP_SYS_ADMIN: the driver hides other users' processes otherwise.
//
// The GPU's own controller writes the records (FECS); the driver copies them into a buffer that
// this process reads. Writing them makes each switch longer while any trace is on: programs that
// took turns on an H100 did 1.5 % less. So a Trace is on from Start to Stop only. It is for one
// goroutine at a time.
type Trace struct {
	kernel    Kernel
	gpu       int   // descriptor of the GPU's device
	own       *file // of the control device; its client has the objects below
	mapped    [][]byte
	maps      []int // descriptors
	root      uint32
	subdevice uint32
	memories  [2]uint32 // of header and records
	events    uint32    // the event buffer; 0 while the trace is off
	header    []byte
	records   []byte
	next      uint32 // the record to be read next
}

// Switch is one context that came onto the GPU, or left it.
type Switch struct {
	// At is in nanoseconds by the GPU's clock: only differences mean something.
	At  uint64
	PID int // in the host's namespace; 0: the driver does not say
	On  bool
}

const (
	traceRecords = 1 << 14 // 1 s at 8,000 switches a second, 512 KiB
	recordSize   = 32      // NV_EVENT_BUFFER_RECORD_HEADER and NV_EVENT_BUFFER_FECS_RECORD_V2
	headerSize   = 4096    // NV_EVENT_BUFFER_HEADER, in a page
	putOffset    = 4       // of recordPut in NV_EVENT_BUFFER_HEADER
)

// OpenTrace prepares the trace of a GPU, by its UUID. It returns ErrUnsupported where this driver has
// none whose structures are known, and the resource manager's status where it refuses.
func (m *Manager) OpenTrace(uuid string) (*Trace, error) {
	if err := m.Supported(); err != nil {
		return nil, err
	}
	version, err := m.kernel.Driver()
	if err != nil {
		return nil, err
	}
	t := &Trace{kernel: m.kernel, gpu: -1}
	if err := t.open(m, uuid, branchOf(version)); err != nil {
		t.Close()
		return nil, fmt.Errorf("trace the context switches of %s: %w", uuid, err)
	}
	return t, nil
}

func (t *Trace) open(m *Manager, uuid, branch string) (err error) {
	if t.gpu, err = m.kernel.OpenGPU(uuid); err != nil {
		t.gpu = -1
		return err
	}
	if t.own, err = m.open(); err != nil {
		return err
	}
	if t.root, t.subdevice, err = t.own.subdeviceOf(uuid); err != nil {
		return err
	}
	if t.memories[0], t.header, err = t.memory(headerSize, branch); err != nil {
		return err
	}
	t.memories[1], t.records, err = t.memory(traceRecords*recordSize, branch)
	return err
}

// subdeviceOf makes a client of our own, with an object for the GPU of that UUID.
func (f *file) subdeviceOf(uuid string) (root, subdevice uint32, err error) {
	if root, err = f.alloc(0, 0, classClient, nil); err != nil {
		return 0, 0, err
	}
	var info uuidInfo
	if len(uuid) >= len(info.UUID) {
		return 0, 0, fmt.Errorf("%q is no UUID", uuid)
	}
	copy(info.UUID[:], uuid)
	if err := f.control(root, root, cmdUUIDInfo, &info); err != nil {
		return 0, 0, err
	}
	subdevice, err = f.onGPU(root, info.Device, info.Subdevice)
	return root, subdevice, err
}

// memory makes memory that the resource manager writes and this process reads.
func (t *Trace) memory(size int, branch string) (handle uint32, memory []byte, err error) {
	params, err := binary.Append(nil, le, &memoryParams{Attr: attrCachedPCI, Attr2: attrUserReadOnly, Size: uint64(size)})
	if err != nil {
		return 0, nil, err
	}
	if handle, err = t.own.allocRaw(t.root, t.root, classDeviceless, params[:memorySize(branch)]); err != nil {
		return 0, nil, err
	}
	fd, err := t.kernel.Open()
	if err != nil {
		return 0, nil, err
	}
	t.maps = append(t.maps, fd)
	p := mapParams{Client: t.root, Device: t.root, Memory: handle, Length: uint64(size), Flags: mapReadOnly, FD: int32(fd)}
	arg, err := binary.Append(nil, le, &p)
	if err != nil {
		return 0, nil, err
	}
	if err := t.kernel.Ioctl(t.own.fd, request(escMapMemory, len(arg)), arg, nil); err != nil {
		return 0, nil, fmt.Errorf("map memory: %w", err)
	}
	if _, err := binary.Decode(arg, le, &p); err != nil {
		return 0, nil, err
	}
	if p.Status != 0 {
		return 0, nil, fmt.Errorf("map memory: %w", Status(p.Status))
	}
	if memory, err = t.kernel.Map(fd, size); err != nil {
		return 0, nil, fmt.Errorf("map memory: %w", err)
	}
	t.mapped = append(t.mapped, memory)
	return handle, memory, nil
}

// put is the record that the driver writes next. It is a word that the driver writes beside us.
func (t *Trace) put() uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&t.header[putOffset]))) % traceRecords
}

// Start switches the trace on. It takes the driver's locks for a millisecond or two. It returns the
// resource manager's status where that refuses: on some vGPUs, in MIG mode.
func (t *Trace) Start() (err error) {
	switch {
	case t.own == nil:
		return errors.New("start a trace after Close")
	case t.events != 0:
		return errors.New("the trace is on")
	}
	t.events, err = t.own.alloc(t.root, t.root, classEventBuffer, &bufferParams{
		RecordSize: recordSize, RecordCount: traceRecords, Subdevice: t.subdevice, HeaderMemory: t.memories[0], RecordMemory: t.memories[1],
	})
	if err != nil {
		return fmt.Errorf("start the trace: %w", err)
	}
	t.next = t.put()
	trace := traceParams{Buffer: t.events, RecordSize: recordSize - 8, Detail: detailSimple, AllUsers: 1}
	if err = t.own.control(t.root, t.subdevice, cmdTraceSwitches, &trace); err == nil {
		err = t.own.control(t.root, t.events, cmdEnableEvents, &enableParams{Enable: 1, Flags: keepNewest})
	}
	if err != nil {
		return fmt.Errorf("start the trace: %w", errors.Join(err, t.end()))
	}
	return nil
}

// Stop switches the trace off and returns the switches since Start, in order. lost: some before or
// among them are missing.
func (t *Trace) Stop() (switches []Switch, lost bool, err error) {
	if t.events == 0 {
		return nil, false, errors.New("the trace is not on")
	}
	// The driver collects records 30 times a second by itself.
	err = t.own.rawControl(t.root, t.events, cmdFlushEvents, nil)
	switches, lost = t.read()
	if err = errors.Join(err, t.end()); err != nil {
		return nil, false, fmt.Errorf("stop the trace: %w", err)
	}
	return switches, lost, nil
}

// end frees the event buffer, which switches the trace off.
func (t *Trace) end() error {
	err := t.own.free(t.root, t.root, t.events)
	t.events = 0
	return err
}

func (t *Trace) read() (switches []Switch, lost bool) {
	due, begun := uint16(0), false // the number of the next record
	for put := t.put(); t.next != put; t.next = (t.next + 1) % traceRecords {
		r := t.records[t.next*recordSize:][:recordSize]
		kind, tag, number := le.Uint16(r), r[8], le.Uint16(r[10:])
		lost = lost || begun && number != due
		begun, due = true, number+1
		if kind != typeSwitch || tag != tagOn && tag != tagOff {
			continue
		}
		s := Switch{At: le.Uint64(r[24:])}
		if pid := le.Uint32(r[16:]); pid != kernelPID { // a context of the driver's own is nobody's
			s.PID, s.On = int(pid), tag == tagOn
		}
		switches = append(switches, s)
	}
	return switches, lost
}

// Close ends the trace. A second Close does nothing.
func (t *Trace) Close() {
	for _, memory := range t.mapped {
		_ = t.kernel.Unmap(memory)
	}
	for _, fd := range t.maps {
		_ = t.kernel.Close(fd)
	}
	if t.own != nil {
		t.own.close() // ends its client, with all objects
	}
	if t.gpu >= 0 {
		_ = t.kernel.Close(t.gpu)
	}
	*t = Trace{kernel: t.kernel, gpu: -1}
}
