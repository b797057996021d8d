package exporter

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/laxity/laxity/exporter/collector"
)

// scrapeBuffer is how much of a scrape in protobuf is sent at once, bytes.
const scrapeBuffer = 64 << 10

// serveMetrics says of an answer in text how long it took to make (header Server-Timing),
// which tells a slow exporter from a slow network or a busy reader. It answers in text, which it sends in one piece, or in protobuf, which alone
// has native histograms. Nothing is compressed: that takes longer than all the rest of a
// scrape, and a scrape comes as often as ten times a second, mostly from the same machine.
func (e *Exporter) serveMetrics() http.Handler {
	protobuf := buffered(promhttp.HandlerForTransactional(e.metrics.Transactional(), promhttp.HandlerOpts{
		EnableOpenMetrics: true, DisableCompression: true,
	}))
	texts := sync.Pool{New: func() any { return new(collector.Text) }}
	formats := expfmt.DefaultOpenMetricsAcceptedFormats()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		format := expfmt.NegotiateAccept(r.Header, formats...)
		kind := format.FormatType()
		if kind != expfmt.TypeTextPlain && kind != expfmt.TypeOpenMetrics {
			protobuf.ServeHTTP(w, r)
			return
		}
		began := time.Now()
		text := texts.Get().(*collector.Text)
		defer texts.Put(text)
		answer, err := e.metrics.Text(text, kind == expfmt.TypeOpenMetrics)
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

// buffered hands the answer on in large pieces. Without it every 4 KiB wake the
// reader up, which costs both more than making the text does, and on a machine
// whose cores are busy each time is another wait for one of them.
func buffered(h http.Handler) http.Handler {
	buffers := sync.Pool{New: func() any { return bufio.NewWriterSize(nil, scrapeBuffer) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := buffers.Get().(*bufio.Writer)
		b.Reset(w)
		h.ServeHTTP(bufferedWriter{ResponseWriter: w, buffer: b}, r)
		_ = b.Flush() // a reader that is gone misses nothing
		b.Reset(nil)
		buffers.Put(b)
	})
}

type buffer = *bufio.Writer

// bufferedWriter has the methods of a bufio.Writer too, so that the encoder puts
// no buffer of its own in between.
type bufferedWriter struct {
	http.ResponseWriter
	buffer
}

func (w bufferedWriter) Write(p []byte) (int, error) { return w.buffer.Write(p) }
