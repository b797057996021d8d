package rm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"
)

// Trace is the driver's trace of context switches on one GPU: whose context came onto it, or left it,
// and when. Profilers use the same. It watches and controls nothing, and other traces may be open
// beside it. It needs CAP_SYS_ADMIN: the driver hides other users' processes otherwise.
//
// The GPU's own controller writes the records (FECS); the driver copies them into a buffer that
// this process reads. A Trace is for one goroutine at a time.
type Trace struct {
	kernel  Kernel
	gpu     int   // descriptor of the GPU's device
	own     *file // of the control device; its client has the objects below
	mapped  [][]byte
	maps    []int // descriptors
	root    uint32
	events  uint32 // the event buffer
	header  []byte
	records []byte
	next    uint32 // the record to be read next
	seqno   uint16 // that it has, if none was lost
	begun   bool   // a record was read
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

// OpenTrace opens the trace of a GPU, by its UUID. It returns ErrUnsupported where this driver has
// none whose structures are known, and the resource manager's status where it refuses: without
// the right to see other users' processes, on a vGPU, in MIG mode with some drivers.
func (m *Manager) OpenTrace(uuid string) (*Trace, error) {
	if err := m.Supported(); err != nil {
		return nil, err
	}
	version, err := m.kernel.Driver()
	if err != nil {
		return nil, err
	}
	branch, _, _ := strings.Cut(version, ".")
	t := &Trace{kernel: m.kernel, gpu: -1}
	if err := t.open(m, uuid, branch); err != nil {
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
	var subdevice uint32
	if t.root, subdevice, err = t.own.subdeviceOf(uuid); err != nil {
		return err
	}
	headers, header, err := t.memory(headerSize, branch)
	if err != nil {
		return err
	}
	buffer, records, err := t.memory(traceRecords*recordSize, branch)
	if err != nil {
		return err
	}
	t.header, t.records = header, records
	t.events, err = t.own.alloc(t.root, t.root, classEventBuffer, &bufferParams{
		RecordSize: recordSize, RecordCount: traceRecords, Subdevice: subdevice, HeaderMemory: headers, RecordMemory: buffer,
	})
	if err != nil {
		return err
	}
	trace := traceParams{Buffer: t.events, RecordSize: recordSize - 8, Detail: detailSimple, AllUsers: 1}
	if err := t.own.control(t.root, subdevice, cmdTraceSwitches, &trace); err != nil {
		return err
	}
	if err := t.own.control(t.root, t.events, cmdEnableEvents, &enableParams{Enable: 1, Flags: keepNewest}); err != nil {
		return err
	}
	t.next = t.put()
	return nil
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

// Read returns the switches since the last Read, in order. lost: some before or among them are
// missing. It costs two locks of the driver for some microseconds.
func (t *Trace) Read() (switches []Switch, lost bool, err error) {
	if t.own == nil {
		return nil, false, errors.New("read a trace after Close")
	}
	// The driver collects records 30 times a second by itself.
	if err := t.own.rawControl(t.root, t.events, cmdFlushEvents, nil); err != nil {
		return nil, false, err
	}
	for put := t.put(); t.next != put; t.next = (t.next + 1) % traceRecords {
		r := t.records[t.next*recordSize:][:recordSize]
		kind, tag, seqno := le.Uint16(r), r[8], le.Uint16(r[10:])
		if t.begun && seqno != t.seqno {
			lost = true
		}
		t.begun, t.seqno = true, seqno+1
		if kind != typeSwitch || tag != tagOn && tag != tagOff {
			continue
		}
		s := Switch{At: le.Uint64(r[24:])}
		if pid := le.Uint32(r[16:]); pid != kernelPID { // a context of the driver's own is nobody's
			s.PID, s.On = int(pid), tag == tagOn
		}
		switches = append(switches, s)
	}
	return switches, lost, nil
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
	t.mapped, t.maps, t.own, t.gpu, t.header, t.records = nil, nil, nil, -1, nil, nil
}
