package cudafile

import (
	"debug/elf"
	"io"
)

// compared is the length of the instruction cmpl $imm32, disp32(%rip), bytes.
const compared = 10

// probePlace returns where a probe costs least in a function that begins at this offset of the
// file: at the first instruction that the kernel emulates. Functions of driver 580 begin with a
// push, which it emulates. Those of 535 and 550 begin with a comparison, which it cannot emulate:
// it single-steps a copy of it, a second trap, so that a call took 10 µs instead of 0.7 on a
// virtual machine. The conditional jump behind the comparison it can emulate. Up to there only the
// flags have changed: arguments and stack are those of the call.
func probePlace(r io.ReaderAt, machine elf.Machine, offset uint64) uint64 {
	var code [compared + 1]byte
	if machine != elf.EM_X86_64 {
		return offset
	}
	if _, err := r.ReadAt(code[:], int64(offset)); err != nil { //nolint:gosec // beyond the file is an error
		return offset
	}
	const cmpl, memory, je = 0x81, 0x3d, 0x74
	if code[0] == cmpl && code[1] == memory && code[compared] == je {
		return offset + compared
	}
	return offset
}
