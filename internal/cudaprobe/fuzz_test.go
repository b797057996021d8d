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
	whole := make([]byte, groupedSize)
	for i, word := range []uint64{1, 2, 3<<32 | 4, 5<<32 | 6} {
		binary.NativeEndian.PutUint64(whole[8*i:], word)
	}
	for _, tally := range []uint32{1, nameSlots - 1, nameSlots, 1 << 31, 1<<32 - 1} {
		raw := bytes.Clone(whole)
		binary.NativeEndian.PutUint32(raw[tallyAt:], tally)
		for slot := range nameSlots {
			copy(raw[namesAt+slot*nameSize:], strings.Repeat("a", nameLeast+slot))
		}
		f.Add(raw)
	}
	for _, seed := range [][]byte{nil, whole[:eventSize-1], whole[:eventSize], whole[:groupedSize-1], bytes.Repeat([]byte{0xff}, groupedSize+8)} {
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
		if uint32(e.PID) != order.Uint32(raw[16:]) || uint32(e.TID) != order.Uint32(raw[20:]) || uint32(e.Kind) != order.Uint32(raw[24:]) || e.ErrorBound < TrapBound {
			t.Errorf("%+v of %x", e, raw[:eventSize])
		}
		// A name that could hold no container's id is as good as none; one more would be of a
		// group that the container made.
		if len(e.Cgroup) > (nameSlots-1)*nameSize || strings.Contains(e.Cgroup, "\x00") {
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
