package cudaprobe

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// The kernel reads the operation of an atomic instruction from its last 4 bytes.
func TestAtomicIsEncoded(t *testing.T) {
	for op, want := range map[asm.AtomicOp]uint32{asm.AddAtomic: 0x00, asm.FetchAdd: 0x01, asm.Xchg: 0xe1} {
		var code bytes.Buffer
		if _, err := atomicOp(op, asm.R0, asm.R1, 8).Marshal(&code, binary.LittleEndian); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(code.Bytes()[4:]); got != want {
			t.Errorf("%v is encoded as %#x, want %#x", op, got, want)
		}
	}
}
