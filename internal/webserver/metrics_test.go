package webserver_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laxity/laxity/internal/webserver"
)

// Whoever takes gzip gets it, in each format; all others get the same as it is.
func TestMetricsAreCompressed(t *testing.T) {
	registry := prometheus.NewRegistry()
	tasks := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tasks", Help: "Tasks."}, []string{"container"})
	registry.MustRegister(tasks)
	for i := range 100 {
		tasks.WithLabelValues(strconv.Itoa(i)).Set(1)
	}
	r := webserver.Router(slog.New(slog.DiscardHandler), refuse)
	r.Handle("GET /metrics", webserver.Metrics(registry, slog.New(slog.DiscardHandler), promhttp.HandlerOpts{}))
	server := httptest.NewServer(r)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}} // it asks for what it is told
	ask := func(method, format, encoding string) (http.Header, []byte) {
		request, err := http.NewRequest(method, server.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", format)
		if encoding != "" {
			request.Header.Set("Accept-Encoding", encoding)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status, err)
		}
		return answer.Header, body
	}
	for format, kind := range map[string]string{
		"":                         "text/plain; version=0.0.4",
		"text/plain;version=0.0.4": "text/plain; version=0.0.4",
		"application/openmetrics-text;version=1.0.0":                                                 "application/openmetrics-text; version=1.0.0",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
	} {
		_, plain := ask("GET", format, "identity")
		for _, tt := range []struct{ method, accepts, encoding string }{
			{"GET", "gzip", "gzip"}, // Prometheus
			{"GET", "zstd,gzip", "gzip"},
			{"GET", "deflate, gzip;q=0.5, br", "gzip"}, // browsers
			{"GET", "", ""},
			{"GET", "identity", ""},
			{"GET", "deflate, zstd", ""},
			{"GET", "gzip;q=0", ""},
			{"HEAD", "gzip", ""}, // there is nothing to compress
			{"HEAD", "", ""},
		} {
			header, body := ask(tt.method, format, tt.accepts)
			if got := header.Get("Content-Encoding"); got != tt.encoding || header.Get("Vary") != "Accept-Encoding" || !strings.HasPrefix(header.Get("Content-Type"), kind) {
				t.Errorf("%s of %q, for %q: %v", tt.method, format, tt.accepts, header)
				continue
			}
			want := plain
			switch {
			case tt.method == "HEAD":
				want = nil
			case tt.encoding == "gzip":
				if len(body) > len(plain)/3 {
					t.Errorf("%q: %d bytes, %d compressed", format, len(plain), len(body))
				}
				body = unpacked(t, body)
			}
			if !bytes.Equal(body, want) {
				t.Errorf("%s of %q, for %q: %q, want %q", tt.method, format, tt.accepts, body, want)
			}
		}
	}
}

func unpacked(t *testing.T, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
