package checkpoint

import (
	"cmp"
	"slices"
)

func isKnown(known []Process, pid int) bool {
	return slices.ContainsFunc(known, func(p Process) bool { return p.PID == pid })
}

func sortProcesses(list []Process) {
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
}

// bytesOf returns what a process holds on each GPU, bytes; nil if nothing.
func bytesOf(gpus []GPU, pid int) map[string]uint64 {
	var held map[string]uint64
	for _, g := range gpus {
		if b, ok := g.Processes[pid]; ok {
			if held == nil {
				held = map[string]uint64{}
			}
			held[g.UUID] = b
		}
	}
	return held
}

// bytes is what it held on all GPUs.
func (p Process) bytes() (n uint64) {
	for _, b := range p.Bytes {
		n += b
	}
	return n
}

// sum adds up what processes hold on each GPU, bytes.
func sum(list []Process) map[string]uint64 {
	total := map[string]uint64{}
	for _, p := range list {
		for uuid, b := range p.Bytes {
			total[uuid] += b
		}
	}
	return total
}
