package gate

import (
	"bytes"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// obstacle says why a process must not be stopped by a signal; empty: it may.
func obstacle(proc string, pid int) string {
	status, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return "" // it is gone, which is found out otherwise
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

// underJobControl reports whether somebody in the process's session, outside of
// its process group, controls that group: the parent of the first process up the
// family tree that is in the group.
func underJobControl(proc string, pid int) bool {
	own, ok := readStat(proc, pid)
	for p := own; ok && p.parent != 0; {
		parent, found := readStat(proc, p.parent)
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

type stat struct {
	state                  byte
	parent, group, session int
	start                  uint64 // ticks since boot
}

// readStat reads /proc/PID/stat; the name in it may hold anything.
func readStat(proc string, pid int) (s stat, ok bool) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const startField = 19
	if len(fields) <= startField {
		return s, false
	}
	s.state = fields[0][0]
	s.parent, _ = strconv.Atoi(fields[1])
	s.group, _ = strconv.Atoi(fields[2])
	s.session, _ = strconv.Atoi(fields[3])
	s.start, err = strconv.ParseUint(fields[startField], 10, 64)
	return s, err == nil
}

// loaded walks through the processes that have loaded a library with the name of
// the driver.
func loaded(proc string) iter.Seq[int] {
	return func(yield func(int) bool) {
		names, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
		if err != nil {
			return
		}
		for _, name := range names {
			pid, err := strconv.Atoi(filepath.Base(name))
			if err != nil {
				continue
			}
			maps, err := os.ReadFile(filepath.Join(name, "maps"))
			if err == nil && bytes.Contains(maps, []byte("/libcuda.so")) && !yield(pid) {
				return
			}
		}
	}
}
