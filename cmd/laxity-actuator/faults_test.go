package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/enforcetest/realdocker"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/internal/needtest"
)

// The Docker daemon is stopped, and killed, while containers are held: nobody
// stays paused, and what a person paused stays so.
func TestDockerRestarts(t *testing.T) {
	daemon := realdocker.NewDaemon(t)
	n := newNodeOn(t, realdocker.At(t, daemon.Host))
	n.tenant()
	b := n.tenant()
	persons, _ := n.docker.Run(t, nil)
	n.docker.SetPaused(t, persons, true)
	n.start("--docker.host=" + daemon.Host)
	for i, end := range []func() error{daemon.Stop, daemon.Kill} {
		n.contention(webhook.Firing)
		n.awaitPaused(b, true)
		if err := errors.Join(end(), daemon.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
		if i == 0 && !n.docker.Paused(b) {
			t.Error("a hold did not outlive the daemon")
		}
	}
	n.clear()
	n.awaitPaused(b, false)
	n.await("nothing is on record", func() bool { return n.onRecord() == 0 })
	if !n.docker.Paused(persons) {
		t.Error("a person's pause was undone")
	}
}

// clear ends every task.
func (n *node) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tasks = nil
}

// Behind the proxy, actuator and guardian do all they do, and nothing is denied.
func TestBehindASocketProxy(t *testing.T) {
	n := newNode(t)
	socket, ok := strings.CutPrefix(n.docker.DaemonHost(), "unix://")
	if !ok {
		needtest.Docker.Skipf(t, "the engine is not at a unix socket but at %s", n.docker.DaemonHost())
	}
	p := startProxy(t, n.binary, "actuator", socket)
	n.tenant()
	b := n.tenant()
	n.start("--docker.host=unix://" + p.socket)
	n.contention(webhook.Firing)
	n.awaitPaused(b, true)
	n.clear()
	n.awaitPaused(b, false)
	// Whoever has it on record needs the proxy to release it.
	n.await("nobody is on record", func() bool { return n.onRecord() == 0 })
	if log := p.stop(); strings.Contains(log, "denied") {
		t.Errorf("calls that are not listed: %s", log)
	}
}

// What Alertmanager sends comes a thousand times, in any order, each twice, with
// some that are never resolved: all are accepted, in the end nobody is stopped but by
// a person, and what fires after it takes effect.
func TestReplayedPayloads(t *testing.T) {
	n := newNode(t)
	ids := []string{n.tenant(), n.tenant(), n.tenant()}
	persons, _ := n.docker.Run(t, nil)
	n.docker.SetPaused(t, persons, true)
	n.start("--lease=2s", "--log.level=error")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	var payloads []string
	for i := range 500 {
		a := webhook.Alert{Status: webhook.Firing, StartsAt: time.Unix(1_700_000_000+int64(i/20), 0), Labels: map[string]string{"node": "e2e"}}
		switch i % 3 {
		case 0:
			a.Labels["alertname"], a.Labels["action"], a.Labels["gpu"], a.Fingerprint = "GPUContention", "arbitrate", gpu, "f"
		default:
			a.Labels["alertname"], a.Labels["action"], a.Labels["container"] = "User", "pause", n.boxes[i%3].Name
			a.Fingerprint = n.boxes[i%3].Name
		}
		if r.IntN(2) == 0 { // the others' resolved is lost
			a.Status = webhook.Resolved
		}
		body, err := json.Marshal(webhook.Message{Version: "4", Alerts: []webhook.Alert{a}})
		if err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, string(body), string(body))
	}
	r.Shuffle(len(payloads), func(i, j int) { payloads[i], payloads[j] = payloads[j], payloads[i] })
	for _, body := range payloads {
		if code, text := n.post("/api/v1/alerts", body); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	n.await("every payload took effect", func() bool { return get[state.State](n, "/api/v1/state").Inbox == 0 })
	n.await("the leases are over", func() bool { return len(get[state.State](n, "/api/v1/state").Leases) == 0 })
	for _, id := range ids {
		n.awaitPaused(id, false)
	}
	n.await("nobody is on record", func() bool { return n.onRecord() == 0 })
	if !n.docker.Paused(persons) {
		t.Error("a person's pause was undone")
	}
	last := webhook.Alert{Status: webhook.Firing, StartsAt: time.Now(), Fingerprint: n.boxes[0].Name,
		Labels: map[string]string{"alertname": "User", "action": "pause", "container": n.boxes[0].Name}}
	body, err := json.Marshal(webhook.Message{Version: "4", Alerts: []webhook.Alert{last}})
	if err != nil {
		t.Fatal(err)
	}
	n.await("what fires now pauses", func() bool { // it is repeated, for its lease is short
		if code, text := n.post("/api/v1/alerts", string(body)); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		return n.docker.Paused(ids[0])
	})
}

// A second actuator on the same engine, with a state folder of its own, stands by
// and takes over when the first one is gone.
func TestTwoActuatorsOnOneEngine(t *testing.T) {
	first := newNode(t)
	first.tenant()
	b := first.tenant()
	first.start()
	first.contention(webhook.Firing)
	first.awaitPaused(b, true)

	second := newNodeOn(t, first.docker)
	second.locks, second.boxes, second.tasks = first.locks, first.boxes, first.tasks
	second.start()
	second.contention(webhook.Firing)
	second.await("it stands by", func() bool {
		return strings.Contains(get[state.State](second, "/api/v1/state").Standby, "another actuator acts on this engine")
	})
	for _, d := range get[[]decision.Decision](second, "/api/v1/decisions") {
		if d.Kind == decision.Pause || d.Kind == decision.Unpause {
			t.Errorf("it acted: %+v", d)
		}
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second.await("it takes over", func() bool { return get[state.State](second, "/api/v1/state").Standby == "" })
	second.await("and acts", func() bool { return second.onRecord() == 1 })
	second.awaitPaused(b, true)
}
