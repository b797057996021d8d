package collector_test

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// answer is the answer in a format, copied.
func answer(t *testing.T, c *collector.Collector, format expfmt.FormatType) string {
	t.Helper()
	text, done, err := c.Answer(expfmt.NewFormat(format))
	defer done()
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// lines are the lines of a text in order: the series of a family have none.
func lines(text string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(text, "\n")), "\n")
}

// What one scrape wrote is gone from the next, which is written over it.
func TestPageIsUsedAgain(t *testing.T) {
	c := crowd(3)
	many := c.s
	answer(t, c.Collector, expfmt.TypeTextPlain)
	for _, gpu := range []string{gpuA, gpuB} {
		one := *many
		one.Containers = []task.Container{box("web", 9)}
		one.Tasks, one.Ended = []task.Task{begun("web", -1, 8)}, nil
		one.Tasks[0].GPUs, one.Containers[0].VisibleGPUs = []string{gpu}, []string{gpu}
		c.s, c.now = &one, at(3600) // the others' counts are gone too
		got, want := lines(answer(t, c.Collector, expfmt.TypeTextPlain)), lines(format(t, c))
		if got != want || strings.Contains(got, `container="c0"`) || !strings.Contains(got, `container="web",gpu="`+gpu) {
			t.Errorf("used again:\n%s\nnew:\n%s", got, want)
		}
	}
}

// Answers in all formats at once, while tasks begin and end.
func TestAnswersAtOnce(t *testing.T) {
	c := crowd(20)
	var all sync.WaitGroup
	for _, kind := range []expfmt.FormatType{expfmt.TypeTextPlain, expfmt.TypeOpenMetrics, expfmt.TypeProtoDelim, expfmt.TypeProtoText, expfmt.TypeTextPlain} {
		all.Go(func() {
			for range 20 {
				families := 0
				decoder := expfmt.NewDecoder(strings.NewReader(answer(t, c.Collector, kind)), expfmt.NewFormat(kind))
				var err error
				for err == nil {
					if err = decoder.Decode(&dto.MetricFamily{}); err == nil {
						families++
					}
				}
				// OpenMetrics and protobuf for people have no decoder here.
				if (kind == expfmt.TypeTextPlain || kind == expfmt.TypeProtoDelim) && (!errors.Is(err, io.EOF) || families < 20) {
					t.Errorf("%v: %d families, %v", kind, families, err)
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

// Protobuf, native histograms included, decodes to what was gathered.
func TestProtobufAnswer(t *testing.T) {
	c := crowd(3)
	families, err := c.Gather()
	if err != nil {
		t.Fatal(err)
	}
	whole := func(f *dto.MetricFamily) string {
		var series []string // in no order
		for _, m := range f.GetMetric() {
			series = append(series, m.String())
		}
		slices.Sort(series)
		return f.GetName() + f.GetHelp() + f.GetType().String() + strings.Join(series, "\n")
	}
	text := answer(t, c.Collector, expfmt.TypeProtoDelim)
	decoder := expfmt.NewDecoder(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, want := range families {
		var got dto.MetricFamily
		if err := decoder.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if whole(&got) != whole(want) {
			t.Errorf("got\n%v\nwant\n%v", &got, want)
		}
	}
	if err := decoder.Decode(&dto.MetricFamily{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the last family: %v", err)
	}
}
