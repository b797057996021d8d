// Package process says when a process began.
//
// It is a leaf. It imports golang.org/x/sys and the standard library.
package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Began returns when a process began, to 10 ms; zero for one that is not there, or has exited.
// proc is where the host's proc file system is mounted.
func Began(proc string, pid int) time.Time {
	stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return time.Time{}
	}
	// After the name, which stands in brackets and may hold some itself: the state, then the start
	// as the 20th, in hundredths of a second since the machine's.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return time.Time{}
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 63)
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(ticks)*10*time.Millisecond - time.Duration(up.Nano()))
}
