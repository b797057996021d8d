// Package forward passes alerts that are about another node on to the actuator
// there, in Alertmanager's own format: so one webhook address serves a fleet. Questions
// about another node's deadlines go the same way.
//
// It keeps nothing: Pass returns an error where a node did not take its alerts, the
// webhook answers 503, and Alertmanager repeats. It imports actuator/webhook, actuator/decision,
// actuator/nodes, actuator/admission, actuator/placement/api, client_golang for its metric, and the standard library.
package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/webhook"
)

// Directory says where the actuator of a node is, and how to authenticate there.
type Directory interface {
	Find(node string) (nodes.Node, bool)
}

// ErrRefused means that the other actuator will never take this message.
var ErrRefused = errors.New("refused for good")

// ErrUnnamed means that this node's name is not known yet, nor therefore which alerts are about
// other nodes.
var ErrUnnamed = errors.New("the name of this node is not known yet: start with --node, or wait for the exporter")

// Options of a Forwarder. Directory is required.
type Options struct {
	Directory Directory
	// Decide receives a decision for the alerts passed on, and for those refused for good.
	Decide func(decision.Decision)
	// DryRun sends nothing and reports what would have been passed on.
	DryRun bool
	// Timeout bounds one delivery; 2 s by default.
	Timeout time.Duration
	Logger  *slog.Logger
	Now     func() time.Time
}

// Forwarder is safe for concurrent use.
type Forwarder struct {
	o      Options
	sender *sender
	alerts *prometheus.CounterVec
}

// New makes a Forwarder.
func New(o Options) (*Forwarder, error) {
	if o.Directory == nil {
		return nil, errors.New("forward: Directory is required")
	}
	if o.Decide == nil {
		o.Decide = func(decision.Decision) {}
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	f := &Forwarder{o: o, sender: newSender(o.Timeout), alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "laxity_actuator_forward_alerts_total",
		Help: "Alerts about other nodes by result: delivered, failed (503: Alertmanager repeats them) or refused (by the other actuator, for good).",
	}, []string{"result"})}
	for _, r := range []string{delivered, failed, refused} {
		f.alerts.WithLabelValues(r)
	}
	return f, nil
}

// Results of the metric.
const delivered, failed, refused = "delivered", "failed", "refused"

// Split returns the message without the alerts that are about another node whose
// actuator is known, and these by node. A message that was passed on already (see
// Mark) is returned whole, so that none goes round in circles. own is this node's
// name.
func (f *Forwarder) Split(ctx context.Context, own string, m webhook.Message) (rest webhook.Message, others map[string][]webhook.Alert, err error) {
	if Marked(ctx) {
		return m, nil, nil
	}
	rest, others = split(own, m, func(node string) bool {
		n, ok := f.o.Directory.Find(node)
		return ok && n.Actuator != ""
	})
	if len(others) > 0 && own == "" {
		return m, nil, ErrUnnamed
	}
	return rest, others, nil
}

// Pass delivers the alerts of m that Split has found to be about other nodes: to all
// nodes at once, each within Options.Timeout. An error means that a node did not take them
// and that a repeat may help.
func (f *Forwarder) Pass(ctx context.Context, m webhook.Message, others map[string][]webhook.Alert) error {
	var (
		sending sync.WaitGroup
		mu      sync.Mutex
		errs    []error
	)
	for node, alerts := range others {
		part := m
		part.Alerts, part.TruncatedAlerts = alerts, 0 // those left out are told here
		sending.Go(func() {
			if err := f.deliver(ctx, node, part); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("not passed on to node %s: %w", node, err))
			}
		})
	}
	sending.Wait()
	return errors.Join(errs...)
}

// deliver sends one message. It returns nil when a repeat cannot help.
func (f *Forwarder) deliver(ctx context.Context, node string, m webhook.Message) error {
	if f.o.DryRun {
		f.report(node, m, decision.DryRun, "would be passed on to the actuator of node "+node, 0, nil)
		return nil
	}
	begin := f.o.Now()
	to, ok := f.o.Directory.Find(node)
	err := fmt.Errorf("node %s is not in the list of nodes any more", node)
	if ok {
		err = f.sender.send(ctx, to, m)
	}
	took := f.o.Now().Sub(begin)
	switch {
	case err == nil:
		f.count(delivered, m)
		f.report(node, m, decision.Forwarded, "passed on to the actuator of node "+node, took, nil)
		return nil
	case errors.Is(err, ErrRefused):
		f.count(refused, m)
		f.o.Logger.Error("alerts are lost: the actuator of another node refuses them", "node", node, "alerts", len(m.Alerts), "err", err)
		f.report(node, m, decision.Failed, "the actuator of node "+node+" refuses it", took, err)
		return nil
	default:
		f.count(failed, m)
		return err
	}
}

func (f *Forwarder) count(result string, m webhook.Message) {
	f.alerts.WithLabelValues(result).Add(float64(len(m.Alerts)))
}

// maxTold bounds the decisions on record about one message: it can hold 22,000 alerts.
const maxTold = 256

func (f *Forwarder) report(node string, m webhook.Message, r decision.Result, reason string, took time.Duration, err error) {
	for _, a := range m.Alerts[:min(len(m.Alerts), maxTold)] {
		a = a.Shortened()
		d := decision.Decision{Time: f.o.Now(), Kind: decision.Alert, Result: r, Reason: reason, Node: node, Seconds: took.Seconds(),
			Alert: a.Name(), Status: a.Status, Fingerprint: a.Fingerprint, Container: a.Labels["container"]}
		if err != nil {
			d.Error = err.Error()
		}
		f.o.Decide(d)
	}
}

// Describe implements prometheus.Collector.
func (f *Forwarder) Describe(ch chan<- *prometheus.Desc) { f.alerts.Describe(ch) }

// Collect implements prometheus.Collector.
func (f *Forwarder) Collect(ch chan<- prometheus.Metric) { f.alerts.Collect(ch) }

// split takes the alerts out that are about a node that is known and not own.
// The rest keeps its order, and everything else of the message. Pure.
func split(own string, m webhook.Message, known func(node string) bool) (rest webhook.Message, others map[string][]webhook.Alert) {
	rest = m
	rest.Alerts = nil
	others = map[string][]webhook.Alert{}
	for _, a := range m.Alerts {
		if node := a.Labels["node"]; node != "" && node != own && known(node) {
			others[node] = append(others[node], a)
			continue
		}
		rest.Alerts = append(rest.Alerts, a)
	}
	return rest, others
}
