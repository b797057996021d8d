package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
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
	found := false
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // no tcp6 without IPv6
			return false
		}
		for _, uid := range usersOn(string(text), number) {
			if uid != uint64(owner.Uid) {
				return false
			}
			found = true
		}
	}
	return found
}

// usersOn returns the users who listen on a port, from /proc/net/tcp or tcp6 (proc_net_tcp.rst of the kernel's
// documentation).
func usersOn(table string, port uint64) (uids []uint64) {
	const local, state, user = 1, 3, 7 // fields of a line
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) <= user || f[state] != "0A" { // TCP_LISTEN
			continue
		}
		_, hex, _ := strings.Cut(f[local], ":")
		uid, err := strconv.ParseUint(f[user], 10, 32)
		if p, perr := strconv.ParseUint(hex, 16, 16); perr == nil && err == nil && p == port {
			uids = append(uids, uid)
		}
	}
	return uids
}
