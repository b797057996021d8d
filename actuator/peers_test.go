package actuator_test

import (
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

// One webhook address for two nodes: the alert about the other one pauses the
// container there, though that node was away when it fired.
func TestAlertForAnotherNode(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	list := &peers{at: map[string]string{"there": gone.URL}}
	here := newBench(t, func(o *actuator.Options) { o.Node, o.Peers = "here", list })
	// It takes the sender for the owner of the container's node: a circle.
	back := &peers{at: map[string]string{}}
	there := newBench(t, func(o *actuator.Options) { o.Node, o.Peers = "there", back })
	here.run("a")
	there.run("a")
	pause := func(node string) webhook.Alert {
		a := alert(webhook.Firing, "User", "pause", "container", "name-a", "node", node)
		a.Fingerprint += node
		return a
	}
	here.send(pause("there"))
	d := here.decided("node there is away", func(d decision.Decision) bool { return d.Kind == decision.Service && d.Node == "there" })
	if d.Result != decision.Failed || d.Error == "" {
		t.Errorf("decision %+v", d)
	}
	if _, text := here.get("/metrics"); !strings.Contains(text, `laxity_actuator_forward_unreachable{node="there"} 1`) || !strings.Contains(text, "laxity_actuator_forward_pending 1") {
		t.Errorf("metrics: %s", text)
	}
	server := httptest.NewServer(there.Handler())
	t.Cleanup(server.Close)
	origin := httptest.NewServer(here.Handler())
	t.Cleanup(origin.Close)
	back.set("elsewhere", origin.URL)
	list.set("elsewhere", server.URL)
	list.set("there", server.URL)
	there.awaitPaused("a", "a")
	here.decided("passed on", func(d decision.Decision) bool {
		return d.Result == decision.Forwarded && d.Node == "there" && d.Alert == "User"
	})
	here.decided("node there is back", func(d decision.Decision) bool { return strings.Contains(d.Reason, "takes alerts again") })
	if here.isPaused("a") {
		t.Error("the container of the same name here is paused")
	}
	// Each has the other down for node elsewhere.
	here.send(pause("elsewhere"))
	there.decided("ignored", func(d decision.Decision) bool { return d.Result == decision.Ignored && d.Node == "elsewhere" })
	// One notification about both.
	here.send(pause("here"), pause("nowhere"))
	here.awaitPaused("a", "a")
	here.decided("no such node", func(d decision.Decision) bool { return d.Result == decision.Ignored && d.Node == "nowhere" })
}
