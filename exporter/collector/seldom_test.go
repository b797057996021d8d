package collector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laxity/laxity/exporter/collector"
)

func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0.0
		desc := prometheus.NewDesc("asked", "How often.", nil, nil)
		c := collector.Seldom(time.Second, prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
			asked++
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, asked)
		}))
		for i, want := range []float64{1, 1, 2, 2} {
			if got := testutil.ToFloat64(c); got != want {
				t.Errorf("collection %d asked %v times, want %v", i, got, want)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}
