// Package forward passes alerts on that are about another node, to the actuator
// there, in Alertmanager's own format: so one webhook address serves a fleet.
//
// What Take kept is on disk; Run delivers it and tries again until it is taken or
// too old to matter. It imports actuator/webhook, actuator/decision,
// actuator/nodes, internal/boltfile, bbolt, client_golang and the standard library.
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

// Send delivers a message to a node's actuator. ErrRefused means that trying
// again cannot help.
type Send func(ctx context.Context, to nodes.Node, m webhook.Message) error

// ErrRefused means that the other actuator will never take this message.
var ErrRefused = errors.New("refused for good")

// ErrUnnamed means that this node's own name is not known yet, so that nobody can
// say which alerts are about another one.
var ErrUnnamed = errors.New("the name of this node is not known yet: start with --node, or wait for the exporter")

// Options of a Forwarder. Path and Directory are required.
type Options struct {
	// Path of the queue's file, on a local disk.
	Path      string
	Directory Directory
	// Decide is told what became of alerts, and of nodes that do not answer.
	Decide func(decision.Decision)
	// Send replaces HTTP.
	Send Send
	// DryRun sends nothing and says what would have been passed on.
	DryRun bool
	// MaxAge is how long an alert is worth passing on: the time of its lease, after
	// which the alert fires again or is over; 5 minutes by default.
	MaxAge time.Duration
	// MaxAlerts bounds what waits for one node; 1000 by default.
	MaxAlerts int
	Logger    *slog.Logger
	Now       func() time.Time
}

// Waits after failed deliveries double from the first to the last.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = time.Minute
	// batch is how many alerts one message has at most.
	batch = 100
)

// Forwarder is safe for concurrent use.
type Forwarder struct {
	o       Options
	queue   *queue
	metrics *metrics
	wake    chan struct{}

	mu     sync.Mutex
	active map[string]bool // nodes that are being served
}

// New opens the queue. What was in it is delivered once Run runs.
func New(o Options) (*Forwarder, error) {
	if o.Path == "" || o.Directory == nil {
		return nil, errors.New("forward: Path and Directory are required")
	}
	if o.Decide == nil {
		o.Decide = func(decision.Decision) {}
	}
	if o.Send == nil {
		o.Send = (&sender{clients: map[string]client{}}).send
	}
	if o.MaxAge <= 0 {
		o.MaxAge = 5 * time.Minute
	}
	if o.MaxAlerts <= 0 {
		o.MaxAlerts = 1000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	q, damaged, err := openQueue(o.Path, o.MaxAlerts)
	if err != nil {
		return nil, err
	}
	if damaged != nil {
		o.Logger.Error("alerts that waited for other nodes are lost; those that still fire come again", "err", damaged)
	}
	return &Forwarder{o: o, queue: q, metrics: newMetrics(q), wake: make(chan struct{}, 1), active: map[string]bool{}}, nil
}

// Take keeps those alerts durably that are about another node whose actuator is
// known, and returns the message with the others. A message that was passed on
// already (see Mark) is returned whole, so that none goes round in circles. own is
// this node's name.
func (f *Forwarder) Take(ctx context.Context, own string, m webhook.Message) (rest webhook.Message, err error) {
	if Marked(ctx) {
		return m, nil
	}
	rest, others := split(own, m, func(node string) bool {
		n, ok := f.o.Directory.Find(node)
		return ok && n.Actuator != ""
	})
	if len(others) == 0 {
		return rest, nil
	}
	if own == "" {
		return m, ErrUnnamed
	}
	if err := f.queue.put(others, m, f.o.Now()); err != nil {
		return m, err
	}
	f.poke()
	return rest, nil
}

func (f *Forwarder) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends. Each node is served by itself, so that one that
// does not answer delays no other.
func (f *Forwarder) Run(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		waiting, err := f.queue.nodes()
		if err != nil {
			return err
		}
		for _, node := range waiting {
			if !f.begin(node) {
				continue
			}
			serving.Go(func() {
				f.serve(ctx, node)
				f.end(node)
			})
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *Forwarder) begin(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active[node] {
		return false
	}
	f.active[node] = true
	return true
}

// end wakes Run: something may have come between the last look and this.
func (f *Forwarder) end(node string) {
	f.mu.Lock()
	delete(f.active, node)
	f.mu.Unlock()
	f.poke()
}

// serve delivers to one node until nothing waits for it.
func (f *Forwarder) serve(ctx context.Context, node string) {
	t := trouble{f: f, node: node}
	defer t.forget()
	for ctx.Err() == nil {
		f.expire(node)
		items, err := f.queue.pending(node, batch)
		if err != nil {
			f.o.Logger.Error("cannot read the alerts that wait to be passed on", "node", node, "err", err)
		}
		if err == nil && len(items) == 0 {
			return
		}
		if err == nil {
			err = f.deliver(ctx, node, items)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			t.over()
			continue
		}
		select {
		case <-time.After(t.next(err)):
		case <-ctx.Done():
		}
	}
}

// deliver sends one message. It returns nil when its alerts are out of the queue.
func (f *Forwarder) deliver(ctx context.Context, node string, items []item) error {
	to, ok := f.o.Directory.Find(node)
	if !ok || to.Actuator == "" {
		return fmt.Errorf("node %s is not in the list of nodes any more", node)
	}
	begin := f.o.Now()
	if f.o.DryRun {
		f.tell(node, items, decision.DryRun, "would be passed on to the actuator of node "+node, 0, nil)
		return f.queue.remove(node, items)
	}
	err := f.o.Send(ctx, to, message(node, items))
	took := f.o.Now().Sub(begin)
	switch {
	case err == nil:
		f.tell(node, items, decision.Forwarded, "passed on to the actuator of node "+node, took, nil)
	case errors.Is(err, ErrRefused):
		f.tell(node, items, decision.Failed, "the actuator of node "+node+" refuses it; it is dropped", took, err)
	default:
		f.metrics.sends.WithLabelValues("failed").Inc()
		return err
	}
	return f.queue.remove(node, items)
}

// expire drops what is too old to be worth anything.
func (f *Forwarder) expire(node string) {
	items, err := f.queue.expire(node, f.o.Now().Add(-f.o.MaxAge))
	if err != nil {
		f.o.Logger.Error("cannot drop the alerts that nobody took", "node", node, "err", err)
		return
	}
	f.tell(node, items, decision.Failed, fmt.Sprintf("not passed on to node %s within %v; it is dropped", node, f.o.MaxAge), 0, nil)
}

func (f *Forwarder) tell(node string, items []item, r decision.Result, reason string, took time.Duration, err error) {
	switch r {
	case decision.Forwarded:
		f.metrics.sends.WithLabelValues("delivered").Inc()
		f.metrics.alerts.WithLabelValues("delivered").Add(float64(len(items)))
	case decision.Failed:
		f.metrics.alerts.WithLabelValues("dropped").Add(float64(len(items)))
	}
	for _, i := range items {
		d := decision.Decision{Time: f.o.Now(), Kind: decision.Alert, Result: r, Reason: reason, Node: node, Seconds: took.Seconds(),
			Alert: i.Alert.Name(), Status: i.Alert.Status, Fingerprint: i.Alert.Fingerprint, Container: i.Alert.Labels["container"]}
		if err != nil {
			d.Error = err.Error()
		}
		f.o.Decide(d)
	}
}

// Close closes the queue.
func (f *Forwarder) Close() error { return f.queue.close() }

// Describe implements prometheus.Collector.
func (f *Forwarder) Describe(ch chan<- *prometheus.Desc) { f.metrics.Describe(ch) }

// Collect implements prometheus.Collector.
func (f *Forwarder) Collect(ch chan<- prometheus.Metric) { f.metrics.Collect(ch) }
