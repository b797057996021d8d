// Package cudabpf holds the BPF programs that run in the kernel, written in C, and the Go types of
// the data that they share with user space. Each C file is one object: starts and exits of
// processes and launches on the GPU serve the exporter, memory serves the actuator's guard. The
// objects are committed, so neither a build nor a run needs a compiler; `make bpf` makes them again
// (it needs clang and libbpf's headers).
//
// The programs find the fields of the kernel's types when they are loaded (CO-RE). So they need a
// kernel with BTF, and Linux 5.8 (starts, exits), 5.12 (launches) or 5.15 (memory). Those of memory
// read a call's arguments as amd64 passes them; the others run on every little-endian processor.
//
// It imports cilium/ebpf only.
package cudabpf

import "github.com/cilium/ebpf"

//go:generate -command bpf2go ../../.tools/bpf2go -go-package cudabpf -target bpfel -no-strip=false -cflags "-O2 -mcpu=v3 -D__TARGET_ARCH_x86 -I/usr/include/x86_64-linux-gnu -Wall -Werror"
//go:generate bpf2go -type event -type event_kind -type event_in_groups -type groups Starts starts.bpf.c
//go:generate bpf2go Exits exits.bpf.c
//go:generate bpf2go -type pace Launches launches.bpf.c
//go:generate bpf2go -type process -type totals -type call -type spent -type budget -type event -type hold -type hold_key -type release -type place -type kind -type call_state -type event_kind -type hold_phase Memory memory.bpf.c

// taken is how many free entries of an LRU map each CPU takes at once before Linux 6.16. Where none are left
// it recycles those in use, long before the map is full.
const taken = 128

// LoadMemoryFor is LoadMemory for a machine with so many CPUs, as the kernel counts possible ones. Its LRU
// maps have room for what each CPU takes, on top of what lives in them: together they take 5 MiB of the
// kernel's memory for 8 CPUs, 9 MiB for 64, and 49 MiB for 512.
func LoadMemoryFor(cpus int) (*ebpf.CollectionSpec, error) {
	spec, err := LoadMemory()
	if err != nil {
		return nil, err
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.LRUHash {
			m.MaxEntries += uint32(cpus) * taken
		}
	}
	return spec, nil
}
