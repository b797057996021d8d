package rm

import (
	"encoding/binary"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

// The driver's trace of context switches, which root can read: cl90cd.h, cl90cdfecs.h, ctrl90cd.h,
// ctrl2080gr.h, cl90ce.h, nvos.h.
const (
	classDeviceless   = 0x90ce // NV01_MEMORY_DEVICELESS
	classEventBuffer  = 0x90cd
	cmdEnableEvents   = 0x90cd0101
	cmdFlushEvents    = 0x90cd0104
	cmdTraceSwitches  = 0x20801238 // NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2
	escMapMemory      = 0x4e
	keepNewest        = 2
	switchesSimple    = 1
	tagStart, tagEnd  = 6, 7 // NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START, _END
	recordBytes       = 32
	records           = 1 << 14
	attrCachedPCI     = 1<<29 | 1<<25
	attr2UserReadOnly = 1 << 22
)

// memoryParams is NV_MEMORY_ALLOCATION_PARAMS of nvos.h, branches 580 and 595.
type memoryParams struct {
	Owner, Type, Flags, Width, Height, Pitch, Attr, Attr2, Format, Compr, Zcull, _ uint32
	RangeLo, RangeHi, Size, Alignment, Offset, Limit, Address                      uint64
	Ctag, VASpace, Internal, Tag, Node, _                                          uint32
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

// readable makes memory that the resource manager writes and this process reads.
func readable(t *testing.T, f *file, root uint32, size int) (handle uint32, memory []byte) {
	t.Helper()
	handle, err := f.alloc(root, root, classDeviceless, &memoryParams{Attr: attrCachedPCI, Attr2: attr2UserReadOnly, Size: uint64(size)})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(controlDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	p := mapParams{Client: root, Device: root, Memory: handle, Length: uint64(size), Flags: 1, FD: int32(fd)}
	arg, _ := binary.Append(nil, le, &p)
	if err := f.kernel.Ioctl(f.fd, request(escMapMemory, len(arg)), arg, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := binary.Decode(arg, le, &p); err != nil || p.Status != 0 {
		t.Fatalf("map %d bytes: %v, %v", size, Status(p.Status), err)
	}
	memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	return handle, memory
}

// TestLiveSwitches tells who was on the GPU when, by the driver's trace, while two programs compute
// side by side. Nothing here relies on it yet.
func TestLiveSwitches(t *testing.T) {
	if _, err := os.Stat(controlDevice); err != nil || !*explore {
		needtest.GPU.Skipf(t, "needs a GPU of NVIDIA and -explore: %v", err)
	}
	m := New(System(), Options{})
	ctx := t.Context()
	if err := m.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	var programs []*tenant.Tenant
	for range 2 {
		run, err := tenant.Start(ctx, t.TempDir(), tenant.Options{Kind: tenant.Spin, Contexts: 1, Most: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Kill()
		programs = append(programs, run)
	}
	p, groups := foundBy(t, m, programs[0])
	own, root, subdevice := ownSubdevice(t, m, p, groups[0])
	headerMemory, header := readable(t, own, root, 4096)
	recordMemory, buffer := readable(t, own, root, records*recordBytes)
	events, err := own.alloc(root, root, classEventBuffer, &bufferParams{
		RecordSize: recordBytes, RecordCount: records, Subdevice: subdevice, HeaderMemory: headerMemory, RecordMemory: recordMemory,
	})
	if err != nil {
		t.Fatal(err)
	}
	trace := traceParams{Buffer: events, RecordSize: recordBytes - 8, Detail: switchesSimple, AllUsers: 1}
	if err := own.control(root, subdevice, cmdTraceSwitches, &trace); err != nil {
		t.Fatalf("trace: %v, reason %d", err, trace.Reason)
	}
	if err := own.control(root, events, cmdEnableEvents, &enableParams{Enable: 1, Flags: keepNewest}); err != nil {
		t.Fatal(err)
	}
	next := le.Uint32(header[4:])
	began, seen := time.Now(), uint64(0)
	active, starts, since := map[uint32]time.Duration{}, map[uint32]int{}, map[uint32]uint64{}
	for time.Since(began) < 5*time.Second {
		time.Sleep(100 * time.Millisecond)
		t.Logf("flush: %v", own.rawControl(root, events, cmdFlushEvents, nil))
		for put := le.Uint32(header[4:]); next != put; next = (next + 1) % records {
			r := buffer[next*recordBytes:][:recordBytes]
			tag, pid, at := r[8], le.Uint32(r[16:]), le.Uint64(r[24:])
			if seen++; seen <= 24 {
				t.Logf("type %d tag %#x seqno %d context %#x pid %d MIG %d/%d at %d", le.Uint16(r), tag, le.Uint16(r[10:]), le.Uint32(r[12:]), pid, r[22], r[23], at)
			}
			switch tag {
			case tagStart:
				since[pid] = at
				starts[pid]++
			case tagEnd:
				if since[pid] > 0 {
					active[pid] += time.Duration(at - since[pid])
				}
			}
		}
	}
	t.Logf("%d records in %v, get %d, put %d, count %d, dropped %d", seen, time.Since(began), le.Uint32(header), le.Uint32(header[4:]), le.Uint64(header[8:]), le.Uint64(header[16:]))
	for _, pid := range slices.Sorted(maps.Keys(starts)) {
		t.Logf("PID %d: on the GPU %d times, %v in all", pid, starts[pid], active[pid])
	}
	t.Logf("the programs: %d, %d", programs[0].PID(), programs[1].PID())
	if err := own.control(root, events, cmdEnableEvents, &enableParams{}); err != nil {
		t.Error(err)
	}
	for _, run := range programs {
		if err := run.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestSizesOfTheTrace(t *testing.T) {
	for what, got := range map[string][2]int{
		"NV_MEMORY_ALLOCATION_PARAMS": {binary.Size(memoryParams{}), 128}, "NV_EVENT_BUFFER_ALLOC_PARAMETERS": {binary.Size(bufferParams{}), 72},
		"BIND_EVTBUF_FOR_UID_V2": {binary.Size(traceParams{}), 24}, "nvos33_parameters_with_fd": {binary.Size(mapParams{}), 56},
	} {
		if got[0] != got[1] {
			t.Errorf("%s has %d bytes, want %d", what, got[0], got[1])
		}
	}
}
