package exporter

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/tracker"
)

// Processes reads /proc. It implements tracker.Processes.
type Processes struct {
	container.Proc
}

// NewProcesses reads the proc file system at path; empty is /proc.
func NewProcesses(path string) Processes {
	if path == "" {
		path = "/proc"
	}
	return Processes{container.Proc(path)}
}

// Stat implements tracker.Processes. The error wraps fs.ErrNotExist when the
// process is gone.
func (p Processes) Stat(pid int) (tracker.Stat, error) {
	var buf [1024]byte // one line; the name in it has at most 64 bytes
	n, err := readInto(buf[:], string(p.Proc)+"/"+strconv.Itoa(pid)+"/stat")
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return tracker.Stat{}, fmt.Errorf("process %d: %w", pid, err)
	}
	s, ok := parseStat(buf[:n])
	if !ok {
		return tracker.Stat{}, fmt.Errorf("process %d: its stat file cannot be read: %q", pid, string(buf[:n]))
	}
	s.Born = sinceBoot(s.Started)
	return s, nil
}

// mpsServer is how the kernel names, in 15 bytes, nvidia-cuda-mps-server, and nvidia-cuda-mps-control, which
// never computes.
const mpsServer = "nvidia-cuda-mps"

// readInto is os.ReadFile for what is read ten times a second for each task: three
// calls of the kernel, and nothing for the garbage collector.
func readInto(buf []byte, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd) // it was only read
	return unix.Read(fd, buf)
}

// pfExiting is PF_EXITING in the kernel's include/linux/sched.h.
const pfExiting = 0x4

// parseStat reads a line of /proc/PID/stat (proc_pid_stat(5)). The name stands in brackets, and
// may hold spaces and brackets itself. Of the fields after it the state is the first, the flags
// are the 7th, and the start is the 20th.
func parseStat(line []byte) (s tracker.Stat, ok bool) {
	begin, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if begin < 0 || end < begin || end+2 >= len(line) {
		return tracker.Stat{}, false
	}
	s.MPSServer = string(line[begin+1:end]) == mpsServer
	rest := line[end+2:]
	s.State = rest[0]
	for i := 1; ; i++ {
		field, after, more := bytes.Cut(rest, []byte{' '})
		switch i {
		case 7:
			flags, err := strconv.ParseUint(string(field), 10, 64)
			if err != nil {
				return tracker.Stat{}, false
			}
			s.Exiting = flags&pfExiting != 0
		case 20:
			ticks, err := strconv.ParseUint(string(field), 10, 63)
			s.Started = time.Duration(ticks) * tracker.StartStep
			return s, err == nil
		}
		if !more {
			return tracker.Stat{}, false
		}
		rest = after
	}
}

// sinceBoot turns a time since boot into a date.
func sinceBoot(d time.Duration) time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Time{}
	}
	return time.Now().Add(d - time.Duration(ts.Nano()))
}
