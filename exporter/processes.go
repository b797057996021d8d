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
	name, state, ticks, ok := parseStat(buf[:n])
	if !ok {
		return tracker.Stat{}, fmt.Errorf("process %d: its stat file cannot be read: %q", pid, string(buf[:n]))
	}
	started := time.Duration(ticks) * tracker.StartStep
	return tracker.Stat{MPSServer: string(name) == mpsServer, State: state, Started: started, Born: sinceBoot(started)}, nil
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

// parseStat reads the name, which stands in brackets and may hold spaces and
// brackets itself, and the fields after it: the state is the first of them, the
// start time the 20th.
func parseStat(line []byte) (name []byte, state byte, start uint64, ok bool) {
	begin, i := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if begin < 0 || i < begin || i+2 >= len(line) {
		return nil, 0, 0, false
	}
	rest := line[i+2:]
	state = rest[0]
	for range 19 {
		j := bytes.IndexByte(rest, ' ')
		if j < 0 {
			return nil, 0, 0, false
		}
		rest = rest[j+1:]
	}
	if j := bytes.IndexByte(rest, ' '); j >= 0 {
		rest = rest[:j]
	}
	start, err := strconv.ParseUint(string(rest), 10, 63)
	return line[begin+1 : i], state, start, err == nil
}

// sinceBoot turns a time since boot into a date.
func sinceBoot(d time.Duration) time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Time{}
	}
	return time.Now().Add(d - time.Duration(ts.Nano()))
}
