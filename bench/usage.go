package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used so far.
type Usage struct {
	CPU     time.Duration // user and system, its waited-for children included
	RSSAnon float64       // bytes, private: RssAnon of /proc/PID/status
}

// clockTick is the unit of /proc/PID/stat; 100 Hz on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// ReadUsage reads /proc/PID/stat and /proc/PID/status.
func ReadUsage(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return Usage{}, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	var u Usage
	for _, f := range fields[11:15] { // utime stime cutime cstime
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		u.CPU += time.Duration(ticks) * clockTick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		var kib float64
		if _, err := fmt.Sscanf(lines.Text(), "RssAnon: %f kB", &kib); err == nil {
			u.RSSAnon = kib * 1024
		}
	}
	return u, nil
}
