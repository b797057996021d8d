// Package proc reads single processes in the proc file system, and watches for their ends. The
// enforcers that stop single processes use it.
//
// It imports internal/memorymap, the standard library and golang.org/x/sys.
package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Obstacle says why a process must not be stopped by a signal; empty if it may be.
func Obstacle(proc string, pid int) string {
	status, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return "" // it has ended; callers find that out by other means
	}
	for line := range strings.Lines(string(status)) {
		if tracer, ok := strings.CutPrefix(line, "TracerPid:"); ok && strings.TrimSpace(tracer) != "0" {
			return "it is being traced (a debugger?), and a tracer would get the signal"
		}
	}
	if underJobControl(proc, pid) {
		return "it runs under a shell with job control, which would take it for suspended"
	}
	return ""
}

// underJobControl reports whether a process of the same session, but outside its process group,
// controls that group: the parent of the group's first member up the family tree.
func underJobControl(proc string, pid int) bool {
	own, ok := ReadStat(proc, pid)
	for p := own; ok && p.parent != 0; {
		parent, found := ReadStat(proc, p.parent)
		if !found || parent.session != own.session {
			return false
		}
		if parent.group != own.group {
			return true
		}
		p = parent
	}
	return false
}

// Stat is what the kernel reports of a process.
type Stat struct {
	State                  byte // a letter, see proc(5)
	parent, group, session int
	Start                  uint64 // start time, hundredths of a second since boot
	Exiting                bool   // it is on its way out of the kernel (PF_EXITING)
}

// ReadStat reads /proc/PID/stat. The process name in it may hold any byte.
func ReadStat(proc string, pid int) (s Stat, ok bool) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const (
		flagsField = 6
		startField = 19
		exiting    = 0x4 // PF_EXITING of include/linux/sched.h
	)
	if len(fields) <= startField {
		return s, false
	}
	s.State = fields[0][0]
	s.parent, _ = strconv.Atoi(fields[1])
	s.group, _ = strconv.Atoi(fields[2])
	s.session, _ = strconv.Atoi(fields[3])
	flags, _ := strconv.ParseUint(fields[flagsField], 10, 64)
	s.Exiting = flags&exiting != 0 || s.State == 'Z' || s.State == 'X'
	s.Start, err = strconv.ParseUint(fields[startField], 10, 64)
	return s, err == nil
}

// Began reports whether the process started at this moment, nanoseconds since boot. 0 is unknown,
// and always true.
func (s Stat) Began(at time.Duration) bool {
	return at == 0 || uint64(at/(10*time.Millisecond)) == s.Start
}

// Ended reports whether the process behind a pidfd has ended.
func Ended(pidfd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}
