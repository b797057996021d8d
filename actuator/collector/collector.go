// Package collector holds the actuator's own metrics, laxity_actuator_*.
//
// It imports client_golang, actuator/state, actuator/enforce and the standard library only. No label is ever a PID or a command line; what is about a container is
// there only while that container is.
package collector

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Present is what is true now; every scrape reads the latest one.
type Present struct {
	Holds int
	// Arbitrated says of each GPU (UUID) whether its arbitration is open.
	Arbitrated   map[string]bool
	Inbox        int
	SnapshotTime time.Time // zero when there is none yet
	// GuardianUp: a guardian watches; it does not count with DryRun.
	GuardianUp, DryRun bool
	// StrayStops is how many processes the guardian's sweeper has continued, ever.
	StrayStops uint64
	Ready      bool
	// PutAside is how many files of the state folder could not be read and were put aside.
	PutAside int
	// PauseInstead: containers that wait are paused because channels cannot be controlled here.
	PauseInstead bool
	// Breaker: hands are off. Standby: another actuator acts on this engine.
	Breaker, Standby bool
	// Memory, Waiting, Denied and Swapped: each container and GPU once.
	Memory  []Memory
	Waiting []Waiting
	Denied  []Denied
	// Unguarded are containers with a limit whose allocations are not denied.
	Unguarded []string
	Swapped   []Swapped
	// Unmet are containers with a deadline that cannot be met from the start. Unkept says of each GPU
	// (UUID) whether promises of its time cannot be kept.
	Unmet  []string
	Unkept map[string]bool

	// Held are the containers that are kept from computing; each container once. Slices are
	// those whose time slice we set, Places who comes first on each GPU.
	Held   []Held
	Slices []Slice
	Places []Place
	// Left are the containers that are left as they are; each container once.
	Left []Left
}

// Metrics is a prometheus.Collector.
type Metrics struct {
	// Alerts counts by action and result.
	Alerts *prometheus.CounterVec
	// Webhooks counts notifications by HTTP code.
	Webhooks *prometheus.CounterVec
	// Actions counts by kind (pause, unpause) and result.
	Actions       *prometheus.CounterVec
	ActionSeconds *prometheus.HistogramVec
	// Latency observes seconds from a snapshot's arrival to the end of an action
	// that it made necessary, by kind.
	Latency *prometheus.HistogramVec
	// Preemptions counts the tasks stopped for one with an earlier deadline,
	// BreakerTrips how often everything was released because of too many actions.
	Preemptions, BreakerTrips prometheus.Counter
	// Decision observes seconds from a snapshot's arrival to the plan.
	Decision prometheus.Histogram
	// Lost counts the holds that ended against our will, by reason.
	Lost *prometheus.CounterVec

	// Changes counts slices set and restored, and channels switched off and on.
	Changes *prometheus.CounterVec
	// ChannelSkew observes the time from the end of the first GPU's calls to that of the last one's
	// where a container on several GPUs goes off or on, by kind.
	ChannelSkew *prometheus.HistogramVec
	// channelCall observes the calls to the resource manager, by kind.
	channelCall *prometheus.HistogramVec

	// Judged counts deadlines by what could be said of them at their start.
	Judged *prometheus.CounterVec

	memoryMetrics

	present atomic.Pointer[func() Present]
	now     func() time.Time
}

const namespace = "laxity_actuator_"

var (
	holdsDesc      = prometheus.NewDesc(namespace+"holds", "Containers that are held now.", nil, nil)
	arbitratedDesc = prometheus.NewDesc(namespace+"arbitration_open", "1 while the policy decides who runs on the GPU.", []string{"gpu"}, nil)
	inboxDesc      = prometheus.NewDesc(namespace+"inbox_messages", "Notifications that were accepted and did not take effect yet.", nil, nil)
	ageDesc        = prometheus.NewDesc(namespace+"snapshot_age_seconds", "Time since the exporter confirmed the facts that are acted on. Absent before the first.", nil, nil)
	guardianDesc   = prometheus.NewDesc(namespace+"guardian_up", "1 while a guardian watches that nothing stays stopped; absent with --dry-run, which stops nothing.", nil, nil)
	strayDesc      = prometheus.NewDesc(namespace+"stray_stops_total", "Processes that Laxity left stopped and that the guardian continued.", nil, nil)
	insteadDesc    = prometheus.NewDesc(namespace+"pause_instead", "1 while containers that wait are paused because time slices and channels cannot be controlled here, though --hold asks for them.", nil, nil)
	breakerDesc    = prometheus.NewDesc(namespace+"breaker_open", "1 while nothing is held because there were too many actions, or too many containers stopped.", nil, nil)
	standbyDesc    = prometheus.NewDesc(namespace+"standby", "1 while another actuator acts on this engine.", nil, nil)
	readyDesc      = prometheus.NewDesc(namespace+"ready", "1 while the actuator can act: snapshots are fresh, and a guardian watches unless --guardian=warn.", nil, nil)
	unmetDesc      = prometheus.NewDesc(namespace+"deadline_unmet", "1 while a task or server of the container has a deadline that cannot be promised from the start, as far as its history tells; absent else.", []string{"container"}, nil)
	unkeptDesc     = prometheus.NewDesc(namespace+"promises_unkept", "1 while promises of the GPU's time cannot be kept, such as shares and the batch floor that add up to more than all of it and are cut in proportion.", []string{"gpu"}, nil)
	asideDesc      = prometheus.NewDesc(namespace+"files_put_aside", "Files of the state folder, and of the record of channels, that could not be read, and lie beside their place until somebody removes them.", nil, nil)
)

// New makes the metrics with every known series at 0.
func New() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
	}
	m := &Metrics{
		Alerts:   counter("alerts_total", "Alerts by what they asked for and what became of them.", "action", "result"),
		Webhooks: counter("notifications_total", "Notifications received by HTTP, by the code of the answer.", "code"),
		Actions:  counter("actions_total", "Pauses and unpauses by result.", "kind", "result"),
		Changes:  counter("channel_changes_total", "Time slices set and put back (slice, restore), and channels taken off the GPU and switched on again (off, on).", "kind"),
		ChannelSkew: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "channel_skew_seconds", Help: "Time from the end of the first GPU's calls to that of the last one's where a container on several GPUs was taken off them or switched on again as one, by what was done.",
			Buckets: []float64{.0001, .0005, .001, .002, .005, .01, .05, .1, 1}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60,
		}, []string{"kind"}),
		channelCall: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "channel_call_seconds", Help: "Time of calls to the GPU driver's resource manager, by what they do.",
			Buckets: []float64{.0001, .0005, .001, .002, .005, .01, .05, .1, 1}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60,
		}, []string{"call"}),
		Judged: counter("deadlines_judged_total", "Deadlines of tasks and servers, by what could be said when they were first seen: met, unmet (it cannot be promised beside those that are there), or unknown (there is no history).", "result"),
		Lost:   counter("holds_lost_total", "Holds that ended without our unpausing, by reason.", "reason"),
		ActionSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "action_duration_seconds", Help: "Time to carry an action out, the check of the kernel's freezer included.",
			Buckets: []float64{.005, .01, .02, .05, .1, .25, .5, 1, 5}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60,
		}, []string{"kind"}),
		Decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: namespace + "decision_duration_seconds", Help: "Time from the arrival of a snapshot to the plan made of it.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .25, .5, 1}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60,
		}),
		Latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "snapshot_to_action_seconds", Help: "Time from the arrival of a snapshot to the end of an action that it made necessary.",
			Buckets: []float64{.005, .01, .02, .05, .1, .25, .5, 1, 5}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60,
		}, []string{"kind"}),
		Preemptions:   prometheus.NewCounter(prometheus.CounterOpts{Name: namespace + "preemptions_total", Help: "Containers that were stopped for one with an earlier deadline."}),
		BreakerTrips:  prometheus.NewCounter(prometheus.CounterOpts{Name: namespace + "breaker_trips_total", Help: "How often everything was released because of too many actions, or too many containers stopped."}),
		memoryMetrics: newMemoryMetrics(),
		now:           time.Now,
	}
	for _, kind := range []string{"pause", "unpause", "swap-out", "swap-in"} {
		m.ActionSeconds.WithLabelValues(kind)
		m.Latency.WithLabelValues(kind)
		for _, result := range []string{"done", "failed", "dry-run", "ignored"} {
			m.Actions.WithLabelValues(kind, result)
		}
	}
	for _, kind := range []string{"slice", "off", "on", "restore"} {
		m.Changes.WithLabelValues(kind)
	}
	for _, kind := range []string{"off", "on"} {
		m.ChannelSkew.WithLabelValues(kind)
	}
	for _, result := range []string{"met", "unmet", "unknown"} {
		m.Judged.WithLabelValues(result)
	}
	for _, call := range []string{"find", "slice", "set slice", "channels off", "channels on", "channels off as one", "channels on as one"} { // as internal/rm calls them
		m.channelCall.WithLabelValues(call)
	}
	for _, reason := range []string{"person", "guardian", "gone"} {
		m.Lost.WithLabelValues(reason)
	}
	for _, code := range []string{"200", "400", "401", "413", "503"} {
		m.Webhooks.WithLabelValues(code)
	}
	return m
}

// ChannelCalled observes a call to the resource manager.
func (m *Metrics) ChannelCalled(call string, took time.Duration, _ error) {
	m.channelCall.WithLabelValues(call).Observe(took.Seconds())
}

// SetPresent says where the present values come from.
func (m *Metrics) SetPresent(f func() Present) { m.present.Store(&f) }

// SetClock replaces time.Now, for tests.
func (m *Metrics) SetClock(now func() time.Time) { m.now = now }

func (m *Metrics) parts() []prometheus.Collector {
	own := []prometheus.Collector{m.Alerts, m.Webhooks, m.Actions, m.ActionSeconds, m.Decision, m.Lost, m.Judged, m.Changes, m.ChannelSkew, m.channelCall, m.Latency, m.Preemptions, m.BreakerTrips}
	return append(own, m.memoryMetrics.parts()...)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, p := range m.parts() {
		p.Describe(ch)
	}
	for _, d := range append(append(memoryDescs(), standingDescs...), holdsDesc, arbitratedDesc, inboxDesc, ageDesc, guardianDesc, strayDesc, readyDesc, insteadDesc, asideDesc, breakerDesc, standbyDesc, unmetDesc, unkeptDesc) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, p := range m.parts() {
		p.Collect(ch)
	}
	f := m.present.Load()
	if f == nil {
		return
	}
	p := (*f)()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(holdsDesc, float64(p.Holds))
	gauge(inboxDesc, float64(p.Inbox))
	if !p.DryRun { // it stops nothing that a guardian could release
		gauge(guardianDesc, bit(p.GuardianUp))
	}
	ch <- prometheus.MustNewConstMetric(strayDesc, prometheus.CounterValue, float64(p.StrayStops))
	gauge(readyDesc, bit(p.Ready))
	gauge(asideDesc, float64(p.PutAside))
	gauge(insteadDesc, bit(p.PauseInstead))
	gauge(breakerDesc, bit(p.Breaker))
	gauge(standbyDesc, bit(p.Standby))
	collectStandings(p, gauge)
	collectMemory(p, gauge)
	for _, container := range p.Unmet {
		gauge(unmetDesc, 1, container)
	}
	for gpu, unkept := range p.Unkept {
		gauge(unkeptDesc, bit(unkept), gpu)
	}
	for gpu, open := range p.Arbitrated {
		gauge(arbitratedDesc, bit(open), gpu)
	}
	if !p.SnapshotTime.IsZero() {
		gauge(ageDesc, max(0, m.now().Sub(p.SnapshotTime).Seconds()))
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
