package forward

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

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

func alert(name, node, status string, startsAt int64) webhook.Alert {
	return webhook.Alert{Status: status, Labels: map[string]string{"alertname": name, "node": node, "action": "pause"},
		StartsAt: time.Unix(startsAt, 0).UTC(), Fingerprint: name + node}
}

func notification(alerts ...webhook.Alert) webhook.Message {
	return webhook.Message{Version: webhook.Version, Status: webhook.Firing, Receiver: "laxity", ExternalURL: "http://am", Alerts: alerts}
}

// journal collects decisions.
type journal struct {
	mu  sync.Mutex
	all []decision.Decision
}

func (j *journal) decide(d decision.Decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, d)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b strings.Builder
	for _, d := range j.all {
		fmt.Fprintf(&b, "%s %s %s %s %s\n", d.Kind, d.Result, d.Node, d.Alert, d.Reason)
	}
	return b.String()
}

func open(t *testing.T, o Options) *Forwarder {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "forward.db")
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTake(t *testing.T) {
	f := open(t, Options{Directory: directory{"a": "http://a", "b": "http://b", "c": ""}})
	m := notification(alert("x", "a", webhook.Firing, 1), alert("x", "b", webhook.Firing, 1), alert("x", "c", webhook.Firing, 1),
		alert("x", "stranger", webhook.Firing, 1), alert("x", "", webhook.Firing, 1))
	rest, err := f.Take(t.Context(), "a", m)
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
	if n, _ := f.queue.nodes(); len(n) != 1 || n[0] != "b" {
		t.Errorf("waits for %v", n)
	}
	if _, err := f.Take(t.Context(), "", m); !errors.Is(err, ErrUnnamed) {
		t.Errorf("without a name: %v", err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	f := open(t, Options{Directory: directory{"b": "http://b"}, MaxAlerts: 2})
	for i := range 3 {
		_, err := f.Take(t.Context(), "a", notification(alert(fmt.Sprint(i), "b", webhook.Firing, 1)))
		if (i == 2) != errors.Is(err, webhook.ErrFull) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := f.Take(t.Context(), "a", notification(alert("1", "b", webhook.Resolved, 1))); err != nil {
		t.Errorf("news of what waits needs no room: %v", err)
	}
}

// A message that was passed on is not passed on again, whatever the lists say:
// here two actuators that each take the other for node x's.
func TestNoCircles(t *testing.T) {
	a := open(t, Options{Directory: directory{"x": "http://b"}})
	b := open(t, Options{Directory: directory{"x": "http://a"}})
	var sent int
	reached := make(chan webhook.Message, 1)
	a.o.Send = func(ctx context.Context, _ nodes.Node, m webhook.Message) error {
		sent++
		rest, err := b.Take(context.WithValue(ctx, markKey{}, true), "b", m)
		reached <- rest
		return err
	}
	b.o.Send = func(context.Context, nodes.Node, webhook.Message) error {
		t.Error("b passes it on again")
		return nil
	}
	if _, err := a.Take(t.Context(), "a", notification(alert("x", "x", webhook.Firing, 1))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	running.Go(func() { _ = b.Run(ctx) })
	if rest := <-reached; len(rest.Alerts) != 1 {
		t.Errorf("b keeps %+v", rest.Alerts)
	}
	cancel()
	running.Wait()
	if n := b.queue.len(); n != 0 || sent != 1 {
		t.Errorf("%d wait at b, %d sent", n, sent)
	}
}

// A node that is away is tried again, later and later, said once, and no reason
// for others to wait.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log journal
		begin := time.Now()
		var tries []time.Duration
		var mu sync.Mutex
		got := map[string][]time.Duration{}
		f := open(t, Options{Directory: directory{"b": "http://b", "c": "http://c"}, Decide: log.decide,
			Send: func(_ context.Context, to nodes.Node, m webhook.Message) error {
				mu.Lock()
				defer mu.Unlock()
				if to.Name == "b" {
					if tries = append(tries, time.Since(begin)); len(tries) < 6 {
						return errors.New("connection refused")
					}
				}
				for range m.Alerts {
					got[to.Name] = append(got[to.Name], time.Since(begin))
				}
				return nil
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		if _, err := f.Take(ctx, "a", notification(alert("x", "b", webhook.Firing, 1), alert("y", "c", webhook.Firing, 1))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if v := testutil.ToFloat64(f.metrics.away.WithLabelValues("b")); v != 1 || testutil.CollectAndCount(f.metrics.away) != 1 {
			t.Errorf("unreachable{b} = %v", v)
		}
		time.Sleep(4 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(got["c"]) != 1 || got["c"][0] > 0 || len(got["b"]) != 1 {
			t.Errorf("delivered: %v", got)
		}
		for i := 2; i < len(tries); i++ {
			if tries[i]-tries[i-1] <= tries[i-1]-tries[i-2] {
				t.Errorf("tries at %v: the waits do not grow", tries)
			}
		}
		text := log.String()
		if strings.Count(text, "service failed b") != 1 || strings.Count(text, "takes alerts again") != 1 || strings.Count(text, "forwarded b x") != 1 || len(log.all) != 4 {
			t.Errorf("decisions:\n%s", text)
		}
		if f.queue.len() != 0 || testutil.CollectAndCount(f.metrics.away) != 0 {
			t.Errorf("%d wait", f.queue.len())
		}
	})
}

// What nobody took while it mattered is dropped, and that is on record.
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log journal
		f := open(t, Options{Directory: directory{"b": "http://b"}, Decide: log.decide, MaxAge: time.Minute,
			Send: func(context.Context, nodes.Node, webhook.Message) error { return errors.New("away") }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		if _, err := f.Take(ctx, "a", notification(alert("x", "b", webhook.Firing, 1))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		cancel()
		<-done
		if f.queue.len() != 0 || !strings.Contains(log.String(), "alert failed b x not passed on") {
			t.Errorf("%d wait\n%s", f.queue.len(), log.String())
		}
	})
}

func TestRefusedForGood(t *testing.T) {
	var log journal
	dropped := make(chan struct{})
	f := open(t, Options{Directory: directory{"b": "http://b"},
		Decide: func(d decision.Decision) { log.decide(d); close(dropped) },
		Send: func(context.Context, nodes.Node, webhook.Message) error {
			return fmt.Errorf("%w: 400", ErrRefused)
		}})
	if _, err := f.Take(t.Context(), "a", notification(alert("x", "b", webhook.Firing, 1))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	<-dropped
	cancel()
	<-done
	if !strings.Contains(log.String(), "refuses it") {
		t.Error(log.String())
	}
}

// What was accepted before a crash is delivered after it.
func TestSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forward.db")
	f := open(t, Options{Path: path, Directory: directory{"b": "http://b"}})
	if _, err := f.Take(t.Context(), "a", notification(alert("x", "b", webhook.Firing, 1))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := make(chan webhook.Message, 1)
	f = open(t, Options{Path: path, Directory: directory{"b": "http://b"}, Send: func(_ context.Context, _ nodes.Node, m webhook.Message) error {
		got <- m
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	m := <-got
	cancel()
	<-done
	if err := m.Validate(); err != nil || m.Status != webhook.Firing || m.Receiver != "laxity" || m.CommonLabels["node"] != "b" || len(m.Alerts) != 1 {
		t.Errorf("%+v %v", m, err)
	}
}

// Whatever comes in whatever order: the queue has for each alert the one of its
// states that no other supersedes.
func TestLatestWins(t *testing.T) {
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		q, _, err := openQueue(filepath.Join(dir, fmt.Sprint(run)), 100)
		if err != nil {
			t.Fatal(err)
		}
		defer q.close() // a test's
		last := map[string]webhook.Alert{}
		for i := range rapid.IntRange(1, 12).Draw(t, "notifications") {
			a := alert(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"), "b",
				rapid.SampledFrom([]string{webhook.Firing, webhook.Resolved}).Draw(t, "status"), int64(rapid.IntRange(1, 3).Draw(t, "start")))
			if err := q.put(map[string][]webhook.Alert{"b": {a}}, webhook.Message{}, time.Unix(int64(i), 0)); err != nil {
				t.Fatal(err)
			}
			old, ok := last[a.Fingerprint]
			if !ok || a.StartsAt.After(old.StartsAt) || a.StartsAt.Equal(old.StartsAt) && a.Status == webhook.Resolved {
				last[a.Fingerprint] = a
			}
		}
		items, err := q.pending("b", 10)
		if err != nil || len(items) != len(last) {
			t.Fatalf("%d wait, %d alerts, %v", len(items), len(last), err)
		}
		for _, i := range items {
			if want := last[i.Key]; i.Alert.Status != want.Status || !i.Alert.StartsAt.Equal(want.StartsAt) {
				t.Fatalf("%s: %s %v waits, want %s %v", i.Key, i.Alert.Status, i.Alert.StartsAt, want.Status, want.StartsAt)
			}
		}
	})
}

// News that comes while the old state is being delivered stays.
func TestNewsDuringDelivery(t *testing.T) {
	f := open(t, Options{Directory: directory{"b": "http://b"}})
	if _, err := f.Take(t.Context(), "a", notification(alert("x", "b", webhook.Firing, 1))); err != nil {
		t.Fatal(err)
	}
	items, err := f.queue.pending("b", 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Take(t.Context(), "a", notification(alert("x", "b", webhook.Resolved, 1))); err != nil {
		t.Fatal(err)
	}
	if err := f.queue.remove("b", items); err != nil {
		t.Fatal(err)
	}
	if items, _ = f.queue.pending("b", 10); len(items) != 1 || items[0].Alert.Status != webhook.Resolved {
		t.Errorf("%+v", items)
	}
}

func TestMessage(t *testing.T) {
	a, b := alert("x", "b", webhook.Resolved, 1), alert("y", "b", webhook.Firing, 1)
	a.Annotations = map[string]string{"summary": "s"}
	m := message("b", []item{{Alert: a}, {Alert: b}})
	if m.Status != webhook.Firing || fmt.Sprint(m.CommonLabels) != "map[action:pause node:b]" || len(m.CommonAnnotations) != 0 || m.Validate() != nil {
		t.Errorf("%+v", m)
	}
	if m := message("b", []item{{Alert: a}}); m.Status != webhook.Resolved {
		t.Errorf("status %s", m.Status)
	}
}
