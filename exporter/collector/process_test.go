package collector

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// readings counts how often it is asked, and says so.
type readings struct {
	desc  *prometheus.Desc
	count int
	fails bool
}

func (r *readings) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc }

func (r *readings) Collect(ch chan<- prometheus.Metric) {
	if r.fails {
		panic("cannot read")
	}
	r.count++
	ch <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, float64(r.count))
}

func newReadings() *readings {
	return &readings{desc: prometheus.NewDesc("readings_total", "Readings.", nil, nil)}
}

func TestProcessIsReadOnceASecond(t *testing.T) {
	for name, tt := range map[string]struct {
		scrapes []time.Duration // since the first
		want    float64         // readings
	}{
		"one scrape":           {[]time.Duration{0}, 1},
		"ten times a second":   {[]time.Duration{0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 999}, 1},
		"a second later":       {[]time.Duration{0, 999, 1000}, 2},
		"counted from reading": {[]time.Duration{0, 900, 1800, 2700}, 2},
		"once a second":        {[]time.Duration{0, 1000, 2000, 3000}, 4},
		"once a minute":        {[]time.Duration{0, 60_000}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Unix(1_800_000_000, 0)
			now := began
			s := &seldom{of: newReadings(), every: time.Second, now: func() time.Time { return now }}
			var got float64
			for _, at := range tt.scrapes {
				now = began.Add(at * time.Millisecond)
				got = testutil.ToFloat64(s)
			}
			if got != tt.want {
				t.Errorf("read %v times, want %v", got, tt.want)
			}
		})
	}
}

// A reading that panics fails one scrape, as without the cache, and the next scrape reads again.
func TestReadingThatPanicsFailsOneScrape(t *testing.T) {
	r := newReadings()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&seldom{of: r, every: time.Hour, now: time.Now})
	r.fails = true
	if _, err := registry.Gather(); err == nil {
		t.Error("the panic was not reported")
	}
	r.fails = false
	if families, err := registry.Gather(); err != nil || len(families) != 1 {
		t.Errorf("%v, %v", families, err)
	}
}

func TestScrapesAtOnceReadOnce(t *testing.T) {
	r := newReadings()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&seldom{of: r, every: time.Hour, now: time.Now})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if families, err := registry.Gather(); err != nil || len(families) != 1 {
				t.Errorf("%v, %v", families, err)
			}
		})
	}
	all.Wait()
	if r.count != 1 {
		t.Errorf("read %d times", r.count)
	}
}
