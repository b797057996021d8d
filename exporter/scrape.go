package exporter

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
)

// serveMetrics answers in the format that the reader asks for, of which protobuf alone has
// native histograms. The header Server-Timing says how long the answer took to make, which
// tells a slow exporter from a slow network or a busy reader. An answer is sent in one
// piece: several would wake the reader up as often, and each time it waits for a core on a
// machine whose cores are busy. Nothing is compressed: that takes longer than all the rest
// of a scrape, and a scrape comes as often as ten times a second, mostly from the same
// machine.
func (e *Exporter) serveMetrics() http.Handler {
	formats := expfmt.DefaultOpenMetricsAcceptedFormats()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		format := expfmt.NegotiateAccept(r.Header, formats...)
		answer, done, err := e.metrics.Answer(format)
		defer done()
		if err != nil {
			http.Error(w, "the metrics could not be gathered: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.Header().Set("Server-Timing", fmt.Sprintf("gather;dur=%.3f", 1000*time.Since(began).Seconds()))
		_, _ = w.Write(answer) // a reader that is gone misses nothing
	})
}
