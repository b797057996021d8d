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
		if err != nil {
			continue
		}
		if u, err := bench.ReadUsage(pid); err != nil || u.Parent != up {
			continue // another's, or gone
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

// processRow reads what a process holds now: MiB of memory, numbers of descriptors and threads.
func processRow(name string, pid int) (bench.Row, error) {
	u, err := bench.ReadUsage(pid)
	if err != nil {
		return nil, err
	}
	row := bench.Row{"kind": "process", "process": name, "pid": pid, "rss_mib": u.RSS / (1 << 20), "rss_anon_mib": u.RSSAnon / (1 << 20), "threads": u.Threads}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	row["descriptors"] = float64(len(open))
	return row, nil
}

// folderRows are the size and the number of the files below a folder, for each of these kinds, one of which kind
// tells of a file by its path from there. Files that go meanwhile do not count.
func folderRows(dir string, kind func(file string) string, kinds ...string) (rows []bench.Row) {
	kib, files := map[string]float64{}, map[string]float64{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it is gone
		}
		if info, err := d.Info(); err == nil {
			is := kind(strings.TrimPrefix(path, dir+"/"))
			kib[is], files[is] = kib[is]+float64(info.Size())/1024, files[is]+1
		}
		return nil
	})
	for _, is := range kinds {
		rows = append(rows, bench.Row{"kind": "folder", "process": is, "disk_kib": kib[is], "files": files[is]})
	}
	return rows
}

// kindOfState tells the log of decisions, which grows up to its bound, and the samples of the rules, which are kept for
// a while and then dropped, from all else in the state folder.
func kindOfState(file string) string {
	switch {
	case strings.HasPrefix(filepath.Base(file), "decisions.jsonl"):
		return "decisions"
	case strings.HasPrefix(file, "samples/"):
		return "samples"
	default:
		return "state"
	}
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
