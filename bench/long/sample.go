package long

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laxity/laxity/bench"
)

// Names of our processes.
const (
	upProcess       = "laxity up"
	guardianProcess = "guardian"
)

// family finds the processes of one `laxity up`: itself, its guardian, and how many others live or
// wait for their parent.
func family(up int) (pids map[string]int, others int) {
	pids = map[string]int{upProcess: up}
	list, _ := os.ReadDir("/proc")
	for _, entry := range list {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || parent(pid) != up {
			continue
		}
		b, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if args := strings.Split(string(b), "\x00"); len(args) > 1 && args[1] == "guardian" {
			pids[guardianProcess] = pid
			continue
		}
		others++
	}
	return pids, others
}

// parent is a process's parent; 0 for one that is gone.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

// processRow reads what a process holds now: MiB of memory, numbers of descriptors and threads.
func processRow(name string, pid int) (bench.Row, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	row := bench.Row{"kind": "process", "process": name, "pid": pid}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		key, rest, _ := strings.Cut(lines.Text(), ":")
		var n float64
		if _, err := fmt.Sscan(rest, &n); err != nil {
			continue
		}
		switch key {
		case "VmRSS":
			row["rss_mib"] = n / 1024
		case "RssAnon":
			row["rss_anon_mib"] = n / 1024
		case "Threads":
			row["threads"] = n
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	row["descriptors"] = float64(len(open))
	return row, nil
}

// usedBelow is the size and the number of the files below a folder. Those that go meanwhile do not count.
func usedBelow(dir string) (kib, files float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it is gone
		}
		if info, err := d.Info(); err == nil {
			kib, files = kib+float64(info.Size())/1024, files+1
		}
		return nil
	})
	return kib, files
}

// metrics is what a page of metrics says, by name: the sum over all labels.
type metrics map[string]float64

// readMetrics adds the samples up, and counts them as "series".
func readMetrics(text []byte) metrics {
	m := metrics{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			continue
		}
		name := line[:strings.IndexAny(line, "{ ")]
		m[name] += v
		m["series"]++
	}
	return m
}
