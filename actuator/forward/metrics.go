package forward

import "github.com/prometheus/client_golang/prometheus"

// metrics have the label node only for nodes that do not answer now.
type metrics struct {
	alerts, sends *prometheus.CounterVec
	away          *prometheus.GaugeVec
	pending       prometheus.GaugeFunc
}

func newMetrics(q *queue) *metrics {
	const ns = "laxity_actuator_forward_"
	m := &metrics{
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: ns + "alerts_total",
			Help: "Alerts about other nodes by what became of them: delivered or dropped."}, []string{"result"}),
		sends: prometheus.NewCounterVec(prometheus.CounterOpts{Name: ns + "sends_total",
			Help: "Messages to actuators of other nodes by result; failed ones are tried again."}, []string{"result"}),
		away: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: ns + "unreachable",
			Help: "1 while the actuator of a node takes no alerts; absent for the others."}, []string{"node"}),
		pending: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: ns + "pending",
			Help: "Alerts that wait to be passed on."}, func() float64 { return float64(q.len()) }),
	}
	for _, r := range []string{"delivered", "dropped"} {
		m.alerts.WithLabelValues(r)
	}
	for _, r := range []string{"delivered", "failed"} {
		m.sends.WithLabelValues(r)
	}
	return m
}

func (m *metrics) unreachable(node string, is bool) {
	if is {
		m.away.WithLabelValues(node).Set(1)
		return
	}
	m.away.DeleteLabelValues(node)
}

func (m *metrics) parts() []prometheus.Collector {
	return []prometheus.Collector{m.alerts, m.sends, m.away, m.pending}
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, p := range m.parts() {
		p.Describe(ch)
	}
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, p := range m.parts() {
		p.Collect(ch)
	}
}
