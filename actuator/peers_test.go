package actuator_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/webhook"
)

// peers knows actuators by node.
type peers struct {
	mu sync.Mutex
	at map[string]string
}

func (p *peers) Find(node string) (nodes.Node, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	address, ok := p.at[node]
	return nodes.Node{Name: node, Actuator: address}, ok
}

func (p *peers) set(node, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[node] = address
}

// post posts alerts as Alertmanager does.
func (b *bench) post(alerts ...webhook.Alert) (code int, said string) {
	b.Helper()
	body, err := json.Marshal(webhook.Message{Version: webhook.Version, Alerts: alerts})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "http://localhost/api/v1/alerts", bytes.NewReader(body))
	r.RemoteAddr = "127.0.0.1:5"
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// One webhook address for two nodes: the alert about the other one pauses the
// container there. While that node is away the sender is told to repeat, and what is
// about this node happens all the same; the repeats change nothing here.
func TestAlertForAnotherNode(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	list := &peers{at: map[string]string{"there": gone.URL}}
	here := newBench(t, func(o *actuator.Options) { o.Node, o.Peers = "here", list })
	// It takes the sender for the owner of the container's node: a circle.
	back := &peers{at: map[string]string{}}
	there := newBench(t, func(o *actuator.Options) { o.Node, o.Peers = "there", back })
	here.run("a")
	there.run("a", "b")
	pause := func(node, container string) webhook.Alert {
		a := alert(webhook.Firing, "User", "pause", "container", "name-"+container, "node", node)
		a.Fingerprint += node + container
		return a
	}
	both := []webhook.Alert{pause("there", "b"), pause("here", "a")}
	for range 3 {
		if code, said := here.post(both...); code != http.StatusServiceUnavailable || !strings.Contains(said, "node there") {
			t.Errorf("node there is away: %d %s", code, said)
		}
	}
	here.awaitPaused("a", "a")
	if _, text := here.get("/metrics"); !strings.Contains(text, `laxity_actuator_forward_alerts_total{result="failed"} 3`) {
		t.Errorf("metrics: %s", text)
	}
	server := httptest.NewServer(there.Handler())
	t.Cleanup(server.Close)
	origin := httptest.NewServer(here.Handler())
	t.Cleanup(origin.Close)
	back.set("elsewhere", origin.URL)
	list.set("elsewhere", server.URL)
	list.set("there", server.URL)
	repeat := func(alerts ...webhook.Alert) { // as Alertmanager does while it hears of a failure
		t.Helper()
		here.await("the alerts are taken", func() bool { code, _ := here.post(alerts...); return code == http.StatusOK })
	}
	for range 2 { // it repeats what it was not sure of, too
		repeat(both...)
	}
	there.awaitPaused("b", "a", "b")
	here.decided("passed on", func(d decision.Decision) bool {
		return d.Result == decision.Forwarded && d.Node == "there" && d.Alert == "User"
	})
	here.await("one lease for one alert", func() bool { return len(here.State().Leases) == 1 })
	there.await("one lease for one alert", func() bool { return len(there.State().Leases) == 1 })
	// Each has the other down for node elsewhere.
	repeat(pause("elsewhere", "a"))
	there.decided("ignored", func(d decision.Decision) bool { return d.Result == decision.Ignored && d.Node == "elsewhere" })
	here.send(pause("nowhere", "a"))
	here.decided("no such node", func(d decision.Decision) bool { return d.Result == decision.Ignored && d.Node == "nowhere" })
}

// Whoever places containers for several nodes asks the chosen one whether a deadline can be met there.
func TestAdmissionOnAnotherNode(t *testing.T) {
	list := &peers{at: map[string]string{}}
	here := newBench(t, func(o *actuator.Options) { o.Node, o.Peers = "here", list })
	there := newBench(t, func(o *actuator.Options) { o.Node = "there" })
	server := httptest.NewServer(there.Handler())
	t.Cleanup(server.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	list.set("there", server.URL)
	list.set("gone", gone.URL)
	here.run("a")
	there.run("b")
	here.seen()
	there.seen()
	for node, want := range map[string]string{"here": `"node":"here"`, "there": `"node":"there"`, "": `"node":"here"`, "gone": "node gone: no actuator answers", "nowhere": "--nodes.file"} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/admission?image=x&deadline=9s&node="+node, nil)
		r.RemoteAddr = "127.0.0.1:5"
		w := httptest.NewRecorder()
		here.Handler().ServeHTTP(w, r)
		code, said := w.Code, w.Body.String()
		known := node != "gone" && node != "nowhere"
		if !strings.Contains(said, want) || (code == http.StatusOK) != known || known && !strings.Contains(said, `"result":"unknown"`) {
			t.Errorf("node %q: %d %s", node, code, said)
		}
	}
}
