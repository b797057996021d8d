package collector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/exporter/collector"
)

func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0.0
		g := collector.Seldom(time.Second, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			asked++
			return []*dto.MetricFamily{{Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: new(asked)}}}}}, nil
		}))
		for i, want := range []float64{1, 1, 2, 2} {
			families, err := g.Gather()
			if err != nil || len(families) != 1 {
				t.Fatal(families, err)
			}
			if got := families[0].GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("gathering %d asked %v times, want %v", i, got, want)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}
