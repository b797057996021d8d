package main

import (
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/laxity/laxity/internal/listener"
)

// listens reports whether the owner of a file, and nobody else, listens on a TCP port of this machine.
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
	users, err := listener.Users(int(number))
	return err == nil && slices.Equal(users, []int{int(owner.Uid)})
}
