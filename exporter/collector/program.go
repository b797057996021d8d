package collector

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors/version"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
)

// began is when this program did, some milliseconds late.
var began = time.Now()

// Program has the metrics of this program: its version and, with process, its
// processor time, memory and open files, by the names that they have everywhere.
// client_golang's own collector reads a dozen files for them, /proc/stat among them,
// which took as long as all the rest of a scrape; this one reads what changes. Those
// of the Go runtime are left out: forty series of each node, for what those of the
// process say already.
func Program(process bool) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(version.NewCollector("laxity_exporter"))
	constant := sync.OnceValues(func() ([]*dto.MetricFamily, error) {
		families, err := r.Gather()
		if err != nil || !process {
			return families, err
		}
		fixed, err := fixedOfProcess()
		return append(families, fixed...), err
	})
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := constant()
		if err != nil || !process {
			return families, err
		}
		now, err := ofProcess()
		return append(now, families...), err
	})
}

// fixedOfProcess are the metrics of this process that stay as they are.
func fixedOfProcess() ([]*dto.MetricFamily, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, err
	}
	return []*dto.MetricFamily{
		single("process_max_fds", "Maximum number of open file descriptors.", dto.MetricType_GAUGE, float64(files.Cur)),
		single("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", dto.MetricType_GAUGE,
			unixSeconds(began)),
	}, nil
}

// ofProcess are the metrics of this process that change.
func ofProcess() ([]*dto.MetricFamily, error) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return nil, err
	}
	cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	virtual, resident, err := memory()
	if err != nil {
		return nil, err
	}
	open, err := openFiles()
	if err != nil {
		return nil, err
	}
	return []*dto.MetricFamily{
		single("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", dto.MetricType_COUNTER, cpu.Seconds()),
		single("process_open_fds", "Number of open file descriptors.", dto.MetricType_GAUGE, float64(open)),
		single("process_resident_memory_bytes", "Resident memory size in bytes.", dto.MetricType_GAUGE, resident),
		single("process_virtual_memory_bytes", "Virtual memory size in bytes.", dto.MetricType_GAUGE, virtual),
	}, nil
}

// memory reads /proc/self/statm, which counts pages.
func memory() (virtual, resident float64, err error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, 0, errors.New("/proc/self/statm: " + string(text))
	}
	var pages [2]uint64
	for i := range pages {
		if pages[i], err = strconv.ParseUint(string(fields[i]), 10, 64); err != nil {
			return 0, 0, err
		}
	}
	size := uint64(os.Getpagesize())
	return float64(pages[0] * size), float64(pages[1] * size), nil
}

// openFiles counts them. Since Linux 6.2 the folder says how many by its size.
func openFiles() (int, error) {
	const folder = "/proc/self/fd"
	info, err := os.Stat(folder)
	if err != nil {
		return 0, err
	}
	if n := info.Size(); n > 0 {
		return int(n), nil
	}
	list, err := os.ReadDir(folder)
	return len(list), err
}

// single is a family of one series without labels.
func single(name, help string, kind dto.MetricType, value float64) *dto.MetricFamily {
	m := &dto.Metric{}
	if kind == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{m}}
}
