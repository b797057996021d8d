package evaluator

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// series is one series of a target that the database knows.
type series struct {
	ref   storage.SeriesRef
	lset  labels.Labels
	round uint64 // when it was last gathered
}

// target appends the metrics of one Target as a scrape does: with target labels,
// with `up`, and with an end mark for each series that is no longer there.
type target struct {
	Target
	up     series
	known  map[string]*series // by labels
	round  uint64
	shared labels.Labels // the target labels
	buf    []byte
	scrap  labels.Builder
}

func newTarget(t Target) *target {
	set := map[string]string{}
	for name, v := range map[string]string{"job": t.Job, "instance": t.Instance, "node": t.Node} {
		if v != "" {
			set[name] = v
		}
	}
	shared := labels.FromMap(set)
	b := labels.NewBuilder(shared)
	b.Set(model.MetricNameLabel, "up")
	return &target{Target: t, shared: shared, known: map[string]*series{}, up: series{lset: b.Labels()}, scrap: *labels.NewBuilder(labels.EmptyLabels())}
}

// collect gathers and appends. When gathering fails nothing of it is used, as a
// failed scrape: up is 0 and every series ends.
func (t *target) collect(app storage.Appender, ts int64) error {
	t.round++
	families, err := t.Gatherer.Gather()
	up := 1.0
	if err != nil {
		families, up = nil, 0
	}
	var errs []error
	if t.up.ref, err = app.Append(t.up.ref, t.up.lset, ts, up); err != nil {
		errs = append(errs, fmt.Errorf("up: %w", err))
	}
	for _, mf := range families {
		for _, m := range mf.GetMetric() {
			if err := t.metric(app, ts, mf, m); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", mf.GetName(), err))
			}
		}
	}
	for key, s := range t.known {
		if s.round == t.round {
			continue
		}
		delete(t.known, key)
		if _, err := app.Append(s.ref, s.lset, ts, math.Float64frombits(value.StaleNaN)); err != nil {
			errs = append(errs, fmt.Errorf("end of %s: %w", s.lset, err))
		}
	}
	return errors.Join(errs...)
}

func (t *target) metric(app storage.Appender, ts int64, mf *dto.MetricFamily, m *dto.Metric) error {
	put := func(suffix string, v float64, extra ...string) error {
		s := t.find(mf.GetName()+suffix, m.GetLabel(), extra...)
		var err error
		s.ref, err = app.Append(s.ref, s.lset, ts, v)
		return err
	}
	switch mf.GetType() {
	case dto.MetricType_COUNTER:
		return put("", m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		return put("", m.GetGauge().GetValue())
	case dto.MetricType_UNTYPED:
		return put("", m.GetUntyped().GetValue())
	case dto.MetricType_SUMMARY:
		s := m.GetSummary()
		errs := []error{put("_count", float64(s.GetSampleCount())), put("_sum", s.GetSampleSum())}
		for _, q := range s.GetQuantile() {
			errs = append(errs, put("", q.GetValue(), "quantile", number(q.GetQuantile())))
		}
		return errors.Join(errs...)
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		h := m.GetHistogram()
		if h.Schema != nil {
			s := t.find(mf.GetName(), m.GetLabel())
			var err error
			if s.ref, err = app.AppendHistogram(s.ref, s.lset, ts, native(h), nil); err != nil {
				return err
			}
			if len(h.GetBucket()) == 0 {
				return nil
			}
		}
		errs := []error{
			put("_count", float64(h.GetSampleCount())), put("_sum", h.GetSampleSum()),
			put("_bucket", float64(h.GetSampleCount()), labels.BucketLabel, "+Inf"),
		}
		for _, b := range h.GetBucket() {
			if !math.IsInf(b.GetUpperBound(), 1) {
				errs = append(errs, put("_bucket", float64(b.GetCumulativeCount()), labels.BucketLabel, number(b.GetUpperBound())))
			}
		}
		return errors.Join(errs...)
	default:
		return fmt.Errorf("metric type %v is not known", mf.GetType())
	}
}

// find returns the series with this name and these labels, known or new. The
// target labels win; a metric's own label of the same name becomes exported_…,
// as in a scrape.
func (t *target) find(name string, pairs []*dto.LabelPair, extra ...string) *series {
	b := &t.scrap
	b.Reset(t.shared)
	for _, p := range pairs {
		n := p.GetName()
		if t.shared.Has(n) {
			n = "exported_" + n
		}
		b.Set(n, p.GetValue())
	}
	for i := 0; i+1 < len(extra); i += 2 {
		b.Set(extra[i], extra[i+1])
	}
	b.Set(model.MetricNameLabel, name)
	lset := b.Labels()
	t.buf = lset.Bytes(t.buf[:0])
	s, ok := t.known[string(t.buf)]
	if !ok {
		s = &series{lset: lset}
		t.known[string(t.buf)] = s
	}
	s.round = t.round
	return s
}

func native(h *dto.Histogram) *histogram.Histogram {
	return &histogram.Histogram{
		Schema:          h.GetSchema(),
		ZeroThreshold:   h.GetZeroThreshold(),
		ZeroCount:       h.GetZeroCount(),
		Count:           h.GetSampleCount(),
		Sum:             h.GetSampleSum(),
		PositiveSpans:   spans(h.GetPositiveSpan()),
		NegativeSpans:   spans(h.GetNegativeSpan()),
		PositiveBuckets: h.GetPositiveDelta(),
		NegativeBuckets: h.GetNegativeDelta(),
	}
}

func spans(from []*dto.BucketSpan) []histogram.Span {
	to := make([]histogram.Span, 0, len(from))
	for _, s := range from {
		// The no-op span by which a native histogram without observations is told
		// from a classic one would be invalid in the database.
		if s.GetLength() == 0 && s.GetOffset() == 0 {
			continue
		}
		to = append(to, histogram.Span{Offset: s.GetOffset(), Length: s.GetLength()})
	}
	return to
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
