package cudaprobe

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/cudabpf"
)

// Whatever lies in the ring buffer, an event is what its bytes say, or an error where there
// are too few of them.
func FuzzEvent(f *testing.F) {
	event := cudabpf.StartsEvent{Time: 1, Start: 2, Returned: 3, Pid: 4, Tid: 5, Kind: cudabpf.StartsEventKindLEFT, Exec: 6}
	eventSize := binary.Size(event)
	encode := func(g cudabpf.StartsGroups) []byte {
		raw, err := binary.Append(nil, binary.NativeEndian, cudabpf.StartsEventInGroups{Event: event, Groups: g})
		if err != nil {
			f.Fatal(err)
		}
		return raw
	}
	var groups cudabpf.StartsGroups
	whole := encode(groups)
	for i := range groups.Names {
		copy(groups.Names[i][:], strings.Repeat("a", 64+i))
	}
	slots := uint32(len(groups.Names))
	for _, groups.Count = range []uint32{1, slots - 1, slots, 1 << 31, 1<<32 - 1} {
		f.Add(encode(groups))
	}
	for _, seed := range [][]byte{nil, whole[:eventSize-1], whole[:eventSize], whole[:len(whole)-1], bytes.Repeat([]byte{0xff}, len(whole)+8)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := decode(raw, readClocks)
		if (err != nil) != (len(raw) < eventSize) {
			t.Fatalf("%d bytes: %v", len(raw), err)
		}
		if err != nil {
			return
		}
		order := binary.NativeEndian
		if uint32(e.PID) != order.Uint32(raw[24:]) || uint32(e.TID) != order.Uint32(raw[28:]) || uint32(e.Kind) != order.Uint32(raw[32:]) || e.ErrorBound < TrapBound {
			t.Errorf("%+v of %x", e, raw[:eventSize])
		}
		// A name that could hold no container's id is as good as none; one more would be of a
		// group that the container made.
		if len(e.Cgroup) > (len(groups.Names)-1)*len(groups.Names[0]) || strings.Contains(e.Cgroup, "\x00") {
			t.Errorf("control group %q", e.Cgroup)
		}
	})
}

// The same for events of the memory guard.
func FuzzMemoryEvent(f *testing.F) {
	size := binary.Size(cudabpf.MemoryEvent{})
	for _, n := range []int{0, 1, size - 1, size, size + 1} {
		f.Add(bytes.Repeat([]byte{1}, n))
		f.Add(bytes.Repeat([]byte{0xff}, n))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := decodeMemory(raw)
		if (err != nil) != (len(raw) < size) {
			t.Fatalf("%d bytes: %v", len(raw), err)
		}
		if err != nil {
			return
		}
		order := binary.NativeEndian
		if uint32(e.PID) != order.Uint32(raw[8:]) || uint32(e.TID) != order.Uint32(raw[12:]) ||
			e.Slipped != (order.Uint32(raw[16:]) == uint32(cudabpf.MemoryEventKindEVENT_SLIPPED)) {
			t.Errorf("%+v of %x", e, raw)
		}
	})
}
