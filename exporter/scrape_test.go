package exporter_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
)

// BenchmarkScrape100Containers is one whole scrape over HTTP, client included, of a node with
// 100 containers that run one task each and have ended another.
func BenchmarkScrape100Containers(b *testing.B) { scrapes(b, "default-container-%d-main") }

// The same of pods, whose names are as long.
func BenchmarkScrape100Pods(b *testing.B) { scrapes(b, "default/container-%d/main") }

func scrapes(b *testing.B, name string) {
	const gpu = "GPU-00000000-0000-0000-0000-000000000000"
	now := time.Now()
	s := &task.Snapshot{
		Time: now, GPUs: []task.GPU{{UUID: gpu, Name: "GPU", MemoryTotal: 1 << 40, Utilization: 0.5}},
		Health: task.Health{DeviceUp: true, EngineUp: true, Sensor: task.SourceUprobe},
	}
	for i := range 100 {
		c := task.Container{ID: fmt.Sprintf("%064d", i), Name: fmt.Sprintf(name, i), Image: "image:1",
			VisibleGPUs: []string{gpu}, MemoryUsed: map[string]uint64{gpu: 1 << 30}, SMUtilization: map[string]float64{gpu: 0.01},
			Spec: task.Spec{Managed: true, Deadline: 3600, Class: task.ClassDeadline}}
		t := task.Task{ContainerID: c.ID, Container: c.Name, GPUs: []string{gpu}, State: task.Running,
			Start: task.Mark{Time: now}, Deadline: now.Add(time.Hour)}
		s.Containers, s.Tasks = append(s.Containers, c), append(s.Tasks, t)
		t.State, t.End = task.Ended, &task.Mark{Time: now}
		s.Ended = append(s.Ended, t)
	}
	col := collector.New(collector.Options{Snapshot: func() *task.Snapshot { return s }})
	for i := range s.Tasks {
		col.Began(s.Tasks[i], gpu)
		col.Ended(s.Ended[i])
	}
	server := httptest.NewServer(exporter.MetricsHandler(b, col))
	defer server.Close()
	for encoding, transport := range map[string]*http.Transport{"gzip": {}, "identity": {DisableCompression: true}} {
		b.Run(encoding, func(b *testing.B) {
			client := &http.Client{Transport: transport}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := client.Get(server.URL)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(n)
				resp.Body.Close()
			}
		})
	}
}
