package exporter

import (
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/exporter/collector"
)

// MetricsHandler serves what a collector has, as a daemon does.
func MetricsHandler(tb testing.TB, c *collector.Collector) http.Handler {
	tb.Helper()
	e := &Exporter{registry: prometheus.NewRegistry()}
	e.registry.MustRegister(c, collector.Runtime())
	return e.serveMetrics()
}
