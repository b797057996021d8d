package collector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func newHistograms(f *family, classic bool, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opt := prometheus.HistogramOpts{
		Name: f.name, Help: f.help,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
	if classic {
		opt.Buckets = buckets
	}
	return prometheus.NewHistogramVec(opt, labels)
}

// series is one histogram. What was written of it is said again until it observes
// something: tasks end less often than somebody scrapes.
type series struct {
	histogram prometheus.Histogram
	written   *dto.Metric
}

func newSeries(of *prometheus.HistogramVec, labels ...string) *series {
	return &series{histogram: of.WithLabelValues(labels...).(prometheus.Histogram)}
}

func (s *series) observe(v float64) {
	s.histogram.Observe(v)
	s.written = nil
}

// metric returns what is not to be changed any more: a scrape may still read it.
func (s *series) metric() (*dto.Metric, error) {
	if s.written == nil {
		m := &dto.Metric{}
		if err := s.histogram.Write(m); err != nil {
			return nil, err
		}
		s.written = m
	}
	return s.written, nil
}
