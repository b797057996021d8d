package exporter_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
)

// accepts are the forms that Prometheus asks for: protobuf where it takes native histograms.
var accepts = []struct{ name, accept string }{
	{"protobuf", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"},
	{"openmetrics", "application/openmetrics-text;version=1.0.0"},
	{"text", "text/plain;version=0.0.4"},
}

// BenchmarkScrape is the exporter's part of a scrape: gather, encode, compress. Each container runs
// a task and has ended another. The names of pods are as long as those of the other containers.
// bytes/scrape is the answer's body as sent; cpu-µs/scrape has all threads of the process.
func BenchmarkScrape(b *testing.B) {
	for _, kind := range []struct{ name, format string }{{"containers", "default-container-%d-main"}, {"pods", "default/container-%d/main"}} {
		for _, count := range []int{10, 100} {
			handler := exporter.MetricsHandler(b, crowd(kind.format, count))
			for _, form := range accepts {
				for _, encoding := range []string{"gzip", "identity"} {
					b.Run(fmt.Sprintf("%s=%d/%s/%s", kind.name, count, form.name, encoding), func(b *testing.B) {
						request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
						request.Header.Set("Accept", form.accept)
						request.Header.Set("Accept-Encoding", encoding)
						b.ReportAllocs()
						var sent int
						began := processorTime(b)
						for b.Loop() {
							w := &discard{header: http.Header{}}
							handler.ServeHTTP(w, request)
							if got := w.header.Get("Content-Encoding"); (got == "gzip") != (encoding == "gzip") {
								b.Fatalf("Content-Encoding %q for %s", got, encoding)
							}
							sent += w.sent
						}
						b.ReportMetric(float64(sent)/float64(b.N), "bytes/scrape")
						b.ReportMetric(float64(processorTime(b)-began)/float64(b.N)/1e3, "cpu-µs/scrape")
					})
				}
			}
		}
	}
}

// crowd is the collector of a node with one GPU and so many containers.
func crowd(format string, count int) *collector.Collector {
	const gpu = "GPU-00000000-0000-0000-0000-000000000000"
	now := time.Now()
	s := &task.Snapshot{
		Time: now, GPUs: []task.GPU{{UUID: gpu, Name: "GPU", MemoryTotal: 1 << 40, Utilization: 0.5}},
		Health: task.Health{DeviceUp: true, EngineUp: true, Sensor: task.SourceUprobe},
	}
	for i := range count {
		c := task.Container{ID: fmt.Sprintf("%064d", i), Name: fmt.Sprintf(format, i), Image: "image:1",
			VisibleGPUs: []string{gpu}, MemoryUsed: map[string]uint64{gpu: 1 << 30}, SMUtilization: map[string]float64{gpu: 0.01},
			Spec: task.Spec{Managed: true, Deadline: 3600, Class: task.ClassDeadline}}
		t := task.Task{ContainerID: c.ID, Container: c.Name, GPUs: []string{gpu}, State: task.Running,
			Start: task.Mark{Time: now}, Deadline: now.Add(time.Hour)}
		s.Containers, s.Tasks = append(s.Containers, c), append(s.Tasks, t)
		t.State, t.End = task.Ended, &task.Mark{Time: now}
		s.Ended = append(s.Ended, t)
	}
	c := collector.New(collector.Options{Snapshot: func() *task.Snapshot { return s }})
	for i := range s.Tasks {
		c.Began(s.Tasks[i], gpu)
		c.Ended(s.Ended[i])
	}
	return c
}

// discard counts an answer's body.
type discard struct {
	header http.Header
	sent   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { d.sent += len(b); return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// processorTime is what the process has used of the processors by now.
func processorTime(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
