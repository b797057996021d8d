package cudafile

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"math"
	"testing"
)

func TestProbePlace(t *testing.T) {
	const before = 3 // bytes before the function
	tests := []struct {
		name, code string // of cuLaunchKernel
		machine    elf.Machine
		want       uint64
	}{
		{"driver 535", "813d3e938d0100ba1c32740cff25c6187e01660f1f440000", elf.EM_X86_64, 10},
		{"driver 550", "813dd67b870100ba1c32740cff25f6047801660f1f440000", elf.EM_X86_64, 10},
		{"driver 580", "554889e541544883ec08813d5c61830500ba1c320f848600", elf.EM_X86_64, 0},
		{"another comparison", "81fd3e938d0100ba1c32740cff25c6187e01660f1f440000", elf.EM_X86_64, 0},
		{"no jump behind it", "813d3e938d0100ba1c32900cff25c6187e01660f1f440000", elf.EM_X86_64, 0},
		{"the file ends", "813d3e938d0100ba1c32", elf.EM_X86_64, 0},
		{"another processor", "813d3e938d0100ba1c32740cff25c6187e01660f1f440000", elf.EM_AARCH64, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, err := hex.DecodeString(tt.code)
			if err != nil {
				t.Fatal(err)
			}
			file := bytes.NewReader(append(make([]byte, before), code...))
			if got := probePlace(file, tt.machine, before); got != before+tt.want {
				t.Errorf("%d bytes into the function, want %d", got-before, tt.want)
			}
		})
	}
	if got := probePlace(bytes.NewReader(nil), elf.EM_X86_64, math.MaxUint64); got != math.MaxUint64 {
		t.Errorf("a place beyond the file became %#x", got)
	}
}
