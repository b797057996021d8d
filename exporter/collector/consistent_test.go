package collector_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
)

// gather returns what g has, in order, after a pedantic registry has looked at all
// of it: names, help and labels as described, no series twice. It looks at no order
// of labels, so that is looked at here.
func gather(t *testing.T, g prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) }
	replay(families).each(func(d *prometheus.Desc, m *dto.Metric) {
		if !slices.IsSortedFunc(m.GetLabel(), byName) {
			t.Errorf("%v: labels %v", d, m.GetLabel())
		}
	})
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(replay(families)); err != nil {
		t.Fatal(err)
	}
	if families, err = registry.Gather(); err != nil {
		t.Error(err)
	}
	return families
}

// replay is a prometheus.Collector of families that were gathered.
type replay []*dto.MetricFamily

// described are the descriptions of a Collector by name.
var described = sync.OnceValue(func() map[string]*prometheus.Desc {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		collector.New(collector.Options{}).Describe(descs)
	}()
	all := map[string]*prometheus.Desc{}
	for d := range descs {
		all[fqName.FindStringSubmatch(d.String())[1]] = d
	}
	return all
})

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (r replay) each(do func(*prometheus.Desc, *dto.Metric)) {
	for _, mf := range r {
		for _, m := range mf.GetMetric() {
			do(described()[mf.GetName()], m)
		}
	}
}

func (replay) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described() {
		ch <- d
	}
}

func (r replay) Collect(ch chan<- prometheus.Metric) {
	r.each(func(d *prometheus.Desc, m *dto.Metric) { ch <- replayed{d, m} })
}

type replayed struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

func (r replayed) Desc() *prometheus.Desc { return r.desc }

func (r replayed) Write(out *dto.Metric) error {
	out.Label, out.Gauge, out.Counter, out.Histogram = r.metric.Label, r.metric.Gauge, r.metric.Counter, r.metric.Histogram
	return nil
}

// ordered is what g has now.
func ordered(t *testing.T, g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return gather(t, g), nil })
}

// What one scrape wrote is gone from the next, which is written over it.
func TestPageIsUsedAgain(t *testing.T) {
	c := crowd(3)
	g := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, done, err := c.Transactional().Gather()
		text := ordered(t, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, err }))
		defer done()
		return text.Gather()
	})
	many := c.s
	format(t, g)
	for _, gpu := range []string{gpuA, gpuB} {
		one := *many
		one.Containers = []task.Container{box("web", 9)}
		one.Tasks, one.Ended = []task.Task{begun("web", -1, 8)}, nil
		one.Tasks[0].GPUs, one.Containers[0].VisibleGPUs = []string{gpu}, []string{gpu}
		c.s, c.now = &one, at(3600) // the others' counts are gone too
		got, want := format(t, g), format(t, c)
		if got != want || strings.Contains(got, `container="c0"`) || !strings.Contains(got, `container="web",gpu="`+gpu) {
			t.Errorf("used again:\n%s\nnew:\n%s", got, want)
		}
	}
}

// Scrapes of all formats at once, while tasks begin and end.
func TestScrapesAtOnce(t *testing.T) {
	c := crowd(20)
	handler := promhttp.HandlerForTransactional(c.Transactional(), promhttp.HandlerOpts{EnableOpenMetrics: true})
	var all sync.WaitGroup
	for _, accept := range []expfmt.FormatType{expfmt.TypeTextPlain, expfmt.TypeOpenMetrics, expfmt.TypeProtoDelim, expfmt.TypeTextPlain} {
		all.Go(func() {
			for range 20 {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
				r.Header.Set("Accept", string(expfmt.NewFormat(accept)))
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				families := 0
				decoder := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header()))
				var err error
				for err == nil {
					if err = decoder.Decode(&dto.MetricFamily{}); err == nil {
						families++
					}
				}
				// OpenMetrics has no decoder here.
				if accept != expfmt.TypeOpenMetrics && (!errors.Is(err, io.EOF) || families < 20) {
					t.Errorf("%v: %d families, %v", accept, families, err)
				}
			}
		})
	}
	all.Go(func() {
		for i := range 200 {
			c.Polled(time.Millisecond, nil)
			c.Began(c.s.Tasks[i%20], gpuA)
			c.Ended(c.s.Ended[i%20])
		}
	})
	all.Wait()
}
