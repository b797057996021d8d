package collector_test

import (
	"math"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/laxity/laxity/exporter/collector"
)

// byExpfmt is what package expfmt says of the families.
func byExpfmt(t *testing.T, families []*dto.MetricFamily, openMetrics bool) string {
	t.Helper()
	var out strings.Builder
	for _, f := range families {
		var err error
		if openMetrics {
			_, err = expfmt.MetricFamilyToOpenMetrics(&out, f)
		} else {
			_, err = expfmt.MetricFamilyToText(&out, f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if openMetrics {
		_, _ = expfmt.FinalizeOpenMetrics(&out)
	}
	return out.String()
}

func compare(t *testing.T, families []*dto.MetricFamily) {
	t.Helper()
	var got []byte // used twice
	for _, openMetrics := range []bool{true, false} {
		var err error
		got, err = collector.Text(got[:0], families, openMetrics)
		if err != nil {
			t.Fatal(err)
		}
		g, w := strings.Split(string(got), "\n"), strings.Split(byExpfmt(t, families, openMetrics), "\n")
		if len(g) != len(w) {
			t.Errorf("OpenMetrics %v: %d lines, want %d", openMetrics, len(g), len(w))
		}
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("OpenMetrics %v: %q, want %q", openMetrics, g[i], w[i])
			}
		}
	}
}

func TestTextOfANode(t *testing.T) {
	for _, classic := range []bool{false, true} {
		s := node()
		s.Containers = append(s.Containers, box("web", 9), box("quoted \"name\"\\\n", 9))
		s.Tasks = append(s.Tasks, begun("web", -1, 8))
		s.Ended = append(s.Ended, over("web", -9, 0, -2))
		c := newScene(s, collector.Options{ClassicHistograms: classic, Beside: collector.Program(true)})
		c.Began(s.Tasks[0], gpuA)
		c.Ended(s.Ended[0])
		families, err := c.Gather()
		if err != nil {
			t.Fatal(err)
		}
		compare(t, families)
	}
}

func TestTextOfOddities(t *testing.T) {
	text := func(s string) *string { return &s }
	family := func(name string, kind dto.MetricType, metrics ...*dto.Metric) *dto.MetricFamily {
		return &dto.MetricFamily{Name: &name, Help: text("a \"help\" \\ of\ntwo lines"), Type: &kind, Metric: metrics}
	}
	labels := []*dto.LabelPair{{Name: text("a"), Value: text("")}, {Name: text("b"), Value: text("\"\\\n\\ü\"")}}
	var gauges, counters, untyped []*dto.Metric
	for _, v := range []float64{
		0, math.Copysign(0, -1), 1, -1, 0.1, 12, 999999, 1e6, -1e6, 123456.5, 1e20, 1e21, 1e-7, 1 << 53, 1795900000.123456,
		math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64,
	} {
		gauges = append(gauges, &dto.Metric{Gauge: &dto.Gauge{Value: &v}}, &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &v}})
		counters = append(counters, &dto.Metric{Label: labels[:1], Counter: &dto.Counter{Value: &v}})
		untyped = append(untyped, &dto.Metric{Untyped: &dto.Untyped{Value: &v}})
	}
	count, sum, bound, infinite := uint64(1234567), 0.5, 0.25, math.Inf(1)
	histogram := func(bounds ...*float64) *dto.Metric {
		h := &dto.Histogram{SampleCount: &count, SampleSum: &sum}
		for _, b := range bounds {
			h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: b, CumulativeCount: &count})
		}
		return &dto.Metric{Label: labels, Histogram: h}
	}
	compare(t, []*dto.MetricFamily{
		family("g", dto.MetricType_GAUGE, gauges...),
		family("c_total", dto.MetricType_COUNTER, counters...),
		family("c", dto.MetricType_COUNTER, counters...),
		family("u", dto.MetricType_UNTYPED, untyped...),
		family("h", dto.MetricType_HISTOGRAM, histogram(), histogram(&bound), histogram(&bound, &infinite)),
	})
}

func BenchmarkAnswer100Containers(b *testing.B) {
	for _, format := range expfmt.DefaultOpenMetricsAcceptedFormats() {
		if format == expfmt.FmtProtoText || format == expfmt.FmtProtoCompact {
			continue // for people
		}
		b.Run(string(format), func(b *testing.B) {
			c := crowd(100)
			b.ReportAllocs()
			for b.Loop() {
				out, done, err := c.Answer(format)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(out)))
				done()
			}
		})
	}
}
