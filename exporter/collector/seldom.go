package collector

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/collectors/version"
	dto "github.com/prometheus/client_model/go"
)

// Seldom gathers at most once a period, and says the same again in between: for
// metrics of the process, which cost as much as a small node's own scrape (all of
// /proc/stat is read for one of them).
func Seldom(period time.Duration, from prometheus.Gatherer) prometheus.Gatherer {
	return &seldom{period: period, from: from}
}

type seldom struct {
	period time.Duration
	from   prometheus.Gatherer

	mu       sync.Mutex
	asked    time.Time
	families []*dto.MetricFamily
	err      error
}

// Gather implements prometheus.Gatherer.
func (s *seldom) Gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.asked.IsZero() || now.Sub(s.asked) >= s.period {
		s.asked = now
		s.families, s.err = s.from.Gather()
	}
	return s.families, s.err
}

// Program has the metrics of this program: its version and, with process, its
// processor time, memory and open files. Those of the Go runtime are left out: forty
// series of each node, for what those of the process say already.
func Program(process bool) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(version.NewCollector("laxity_exporter"))
	if process {
		r.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return Seldom(time.Second, r)
}
