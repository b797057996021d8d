package collector_test

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/exporter/collector"
)

// What it says of the process is what client_golang says, by the same names.
func TestProgram(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families := func(g prometheus.Gatherer) map[string]*dto.MetricFamily {
		all, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]*dto.MetricFamily{}
		for _, f := range all {
			byName[f.GetName()] = f
		}
		return byName
	}
	value := func(f *dto.MetricFamily) float64 {
		m := f.GetMetric()[0]
		return m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	program := collector.Program(true)
	families(program) // what is constant is kept
	got, want := families(program), families(r)
	for name, tolerance := range map[string]float64{
		"process_cpu_seconds_total": 0.5, "process_open_fds": 3, "process_max_fds": 0, "process_resident_memory_bytes": 32 << 20,
		"process_virtual_memory_bytes": 256 << 20, "process_start_time_seconds": 2,
	} {
		g, w := got[name], want[name]
		if g == nil || w == nil || g.GetType() != w.GetType() || g.GetHelp() != w.GetHelp() {
			t.Errorf("%s: %v, want %v", name, g, w)
			continue
		}
		if math.Abs(value(g)-value(w)) > tolerance {
			t.Errorf("%s = %v, want %v", name, value(g), value(w))
		}
	}
	if got["laxity_exporter_build_info"] == nil {
		t.Error("no version")
	}
	if version := families(collector.Program(false)); len(version) != 1 {
		t.Errorf("without the process: %v", version)
	}
}

func BenchmarkProgram(b *testing.B) {
	program := collector.Program(true)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := program.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
