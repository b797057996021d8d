// Package cudabpf holds the BPF programs that run in the kernel, written in C, and
// the Go types of what they share with user space. The objects are committed, so
// neither a build nor a run needs a compiler; `make bpf` makes them again (it needs
// clang and libbpf's headers).
//
// It imports cilium/ebpf only.
package cudabpf

//go:generate ../../.tools/bpf2go -go-package cudabpf -target bpfel -no-strip=false -cflags "-O2 -mcpu=v3 -D__TARGET_ARCH_x86 -I/usr/include/x86_64-linux-gnu -Wall -Werror" -type process -type totals -type call -type spent -type budget -type event -type hold -type hold_key -type release -type place -type kind -type call_state -type event_kind -type hold_phase Memory memory.bpf.c
