package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/webhook"
)

// directory knows actuators by node.
type directory map[string]string

func (d directory) Find(node string) (nodes.Node, bool) {
	address, ok := d[node]
	return nodes.Node{Name: node, Actuator: address}, ok
}

func alert(name, node, status string) webhook.Alert {
	return webhook.Alert{Status: status, Labels: map[string]string{"alertname": name, "node": node, "action": "pause"},
		StartsAt: time.Unix(1, 0).UTC(), Fingerprint: name + node}
}

func notification(alerts ...webhook.Alert) webhook.Message {
	return webhook.Message{Version: webhook.Version, Status: webhook.Firing, Receiver: "laxity", ExternalURL: "http://am", Alerts: alerts}
}

// told collects decisions, as one line each.
type told struct {
	mu  sync.Mutex
	all []string
}

func (j *told) decide(d decision.Decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, fmt.Sprintf("%s %s %s %s", d.Kind, d.Result, d.Node, d.Alert))
}

func (j *told) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.Sort(j.all)
	return strings.Join(j.all, "\n")
}

// open makes one that, where o has no limit, gives up a node only in a test that hangs.
func open(t *testing.T, o Options) *Forwarder {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// pass is what the actuator does with a message.
func pass(t *testing.T, f *Forwarder, m webhook.Message) error {
	t.Helper()
	_, others, err := f.Split(t.Context(), "a", m)
	if err != nil {
		t.Fatal(err)
	}
	return f.Pass(t.Context(), m, others)
}

func count(f *Forwarder, result string) float64 {
	return testutil.ToFloat64(f.alerts.WithLabelValues(result))
}

func TestSplit(t *testing.T) {
	f := open(t, Options{Directory: directory{"a": "http://a", "b": "http://b", "c": ""}})
	m := notification(alert("x", "a", webhook.Firing), alert("x", "b", webhook.Firing), alert("x", "c", webhook.Firing),
		alert("x", "stranger", webhook.Firing), alert("x", "", webhook.Firing))
	rest, others, err := f.Split(t.Context(), "a", m)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, a := range rest.Alerts {
		kept = append(kept, a.Labels["node"])
	}
	if got := strings.Join(kept, ","); got != "a,c,stranger," || rest.Receiver != "laxity" {
		t.Errorf("kept here: %s", got)
	}
	if len(others) != 1 || len(others["b"]) != 1 {
		t.Errorf("to be passed on: %v", others)
	}
	if _, _, err := f.Split(t.Context(), "", m); !errors.Is(err, ErrUnnamed) {
		t.Errorf("without a name: %v", err)
	}
}

// Nodes are asked at the same time, and one that does not take its alerts keeps no
// other from them; the sender is told to repeat.
func TestPassToAllNodesAtOnce(t *testing.T) {
	var all sync.WaitGroup // a node answers once all have been asked
	all.Add(3)
	b, c := &receiver{}, &receiver{}
	serve := func(h http.Handler) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			all.Done()
			all.Wait()
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	var log told
	f := open(t, Options{Decide: log.decide, Directory: directory{
		"b": serve(b.handler()), "c": serve(c.handler()),
		"d": serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "full", http.StatusServiceUnavailable) })),
	}})
	m := notification(alert("x", "b", webhook.Firing), alert("y", "b", webhook.Resolved), alert("x", "c", webhook.Firing), alert("x", "d", webhook.Firing))
	m.TruncatedAlerts = 3
	if err := pass(t, f, m); err == nil || !strings.Contains(err.Error(), "node d") || strings.Contains(err.Error(), "node b") {
		t.Errorf("error %v", err)
	}
	if len(b.got.Alerts) != 2 || len(c.got.Alerts) != 1 || c.got.Receiver != "laxity" || c.got.TruncatedAlerts != 0 || !b.marked {
		t.Errorf("b got %+v\nc got %+v", b.got, c.got)
	}
	if got := log.String(); got != "alert forwarded b x\nalert forwarded b y\nalert forwarded c x" {
		t.Errorf("decisions:\n%s", got)
	}
	if count(f, delivered) != 3 || count(f, failed) != 1 || count(f, refused) != 0 {
		t.Errorf("counted %v delivered, %v failed", count(f, delivered), count(f, failed))
	}
}

// A node that never answers is given up in time for the sender to get its answer.
func TestPassEndsInTime(t *testing.T) {
	end := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer hangs.Close()
	defer close(end)
	f := open(t, Options{Directory: directory{"b": hangs.URL}, Timeout: 20 * time.Millisecond})
	if err := pass(t, f, notification(alert("x", "b", webhook.Firing))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// A message that was passed on is not passed on again, whatever the lists say:
// here two actuators that each take the other for node x's.
func TestNoCircles(t *testing.T) {
	back := &receiver{}
	origin := httptest.NewServer(back.handler())
	defer origin.Close()
	b := open(t, Options{Directory: directory{"x": origin.URL}})
	kept := 0
	server := httptest.NewServer(Mark(webhook.Handler(receive(func(ctx context.Context, m webhook.Message) error {
		rest, others, err := b.Split(ctx, "b", m)
		kept = len(rest.Alerts)
		return errors.Join(err, b.Pass(ctx, m, others))
	}), slog.New(slog.DiscardHandler), nil)))
	defer server.Close()
	if err := pass(t, open(t, Options{Directory: directory{"x": server.URL}}), notification(alert("x", "x", webhook.Firing))); err != nil {
		t.Fatal(err)
	}
	if kept != 1 || len(back.got.Alerts) != 0 {
		t.Errorf("b keeps %d, and %+v came back", kept, back.got)
	}
}

// What the other actuator will never take is no reason to repeat.
func TestRefusedForGood(t *testing.T) {
	server := httptest.NewServer((&receiver{err: webhook.ErrInvalid}).handler())
	defer server.Close()
	var log told
	f := open(t, Options{Directory: directory{"b": server.URL}, Decide: log.decide})
	if err := pass(t, f, notification(alert("x", "b", webhook.Firing))); err != nil {
		t.Errorf("to be repeated: %v", err)
	}
	if got := log.String(); got != "alert failed b x" || count(f, refused) != 1 {
		t.Errorf("decisions: %s", got)
	}
}

func TestDryRunSendsNothing(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r.handler())
	defer server.Close()
	var log told
	if err := pass(t, open(t, Options{Directory: directory{"b": server.URL}, Decide: log.decide, DryRun: true}), notification(alert("x", "b", webhook.Firing))); err != nil {
		t.Error(err)
	}
	if got := log.String(); len(r.got.Alerts) != 0 || got != "alert dry-run b x" {
		t.Errorf("sent %+v, decisions %s", r.got, got)
	}
}

type receive func(ctx context.Context, m webhook.Message) error

func (r receive) Receive(ctx context.Context, m webhook.Message) error { return r(ctx, m) }
