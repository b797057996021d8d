package exporter

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/laxity/laxity/exporter/collector"
)

// MetricsHandler serves what a collector has, as a daemon does.
func MetricsHandler(tb testing.TB, c *collector.Collector) http.Handler {
	tb.Helper()
	return (&Exporter{log: slog.New(slog.DiscardHandler), registry: collector.NewRegistry(c, true)}).serveMetrics()
}

// OpenUsageWith is OpenUsage by another way to open the device, and with this limit.
var OpenUsageWith = openUsage
