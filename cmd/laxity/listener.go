package main

import (
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/prometheus/procfs"
)

// listens reports whether the owner of a file, and nobody else, listens on a TCP port of this machine:
// while a service is down, any user may take its port.
func listens(file, port string) bool {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return false
	}
	info, err := os.Stat(file)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	proc, err := procfs.NewFS("/proc")
	if err != nil {
		return false
	}
	four, err := proc.NetTCP()
	six, _ := proc.NetTCP6() // not there without IPv6
	found := false
	const listening = 10 // TCP_LISTEN of the kernel's tcp_states.h
	for _, s := range slices.Concat(four, six) {
		if s.St == listening && s.LocalPort == number {
			if s.UID != uint64(owner.Uid) {
				return false
			}
			found = true
		}
	}
	return err == nil && found
}
