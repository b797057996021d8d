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
	RSS     float64       // bytes, shared files included: VmRSS
	Threads float64
	Parent  int // its PID
}

// clockTick is the unit of /proc/PID/stat; 100 Hz on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// Series counts the series of a page of metrics: the lines that are no comments, so each bucket
// of a histogram is one.
func Series(page []byte) (n int) {
	for line := range bytes.Lines(page) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' {
			n++
		}
	}
	return n
}

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
		key, rest, _ := strings.Cut(lines.Text(), ":")
		var n float64
		if _, err := fmt.Sscan(rest, &n); err != nil {
			continue // no number
		}
		switch key {
		case "RssAnon":
			u.RSSAnon = n * 1024
		case "VmRSS":
			u.RSS = n * 1024
		case "Threads":
			u.Threads = n
		case "PPid":
			u.Parent = int(n)
		}
	}
	return u, nil
}
