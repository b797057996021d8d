// Package proc reads single processes in the proc file system, and watches for their ends. The
// enforcers that stop single processes use it.
//
// It imports internal/memorymap, the standard library and golang.org/x/sys.
package proc

import (
	"bytes"
	"errors"
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

// ReadStat reads PID/stat in a folder: the proc file system for a process, /proc/PID/task for a
// thread. The name in it may hold any byte. It makes three system calls, as the memory guard reads
// every thread of a process while that stands.
func ReadStat(folder string, pid int) (s Stat, ok bool) {
	var buffer [1024]byte // the line has some 300 bytes; what is read here is in the first 200
	n, err := readOnce(filepath.Join(folder, strconv.Itoa(pid), "stat"), buffer[:])
	if err != nil {
		return s, false
	}
	line := buffer[:n]
	const (
		parentField  = 1
		groupField   = 2
		sessionField = 3
		flagsField   = 6
		startField   = 19
		exiting      = 0x4 // PF_EXITING of include/linux/sched.h
	)
	i := 0
	for field := range bytes.FieldsSeq(line[bytes.LastIndexByte(line, ')')+1:]) {
		switch i {
		case 0:
			s.State = field[0]
		case parentField:
			s.parent = int(number(field))
		case groupField:
			s.group = int(number(field))
		case sessionField:
			s.session = int(number(field))
		case flagsField:
			s.Exiting = number(field)&exiting != 0 || s.State == 'Z' || s.State == 'X'
		case startField:
			s.Start = number(field)
			return s, true
		}
		i++
	}
	return s, false // the line is cut off
}

// readOnce reads the start of a file without os.File, which costs five system calls more than the
// three made here.
func readOnce(name string, into []byte) (n int, err error) {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return retry(func() (int, error) { return unix.Read(fd, into) })
}

func retry(call func() (int, error)) (n int, err error) {
	for n, err = call(); errors.Is(err, unix.EINTR); n, err = call() {
	}
	return n, err
}

// number reads what the kernel has printed with %d or %u; 0 for a negative number.
func number(field []byte) uint64 {
	n, _ := strconv.ParseUint(string(field), 10, 64)
	return n
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
