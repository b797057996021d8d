package actuator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/webhook"
)

// The exporter's wall clock, which is the actuator's as a rule, is set while both run.
func TestFactsAreTakenWhenTheClockIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{"back": -time.Hour, "on": time.Hour} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.run("a")
			b.await("it is ready", func() bool { return b.State().Ready })
			b.source.set(func() { b.source.ahead = by })
			b.run("b")
			b.send(contention(webhook.Firing))
			b.awaitPaused("b", "a", "b")
		})
	}
}

// An exporter that cannot read the GPUs confirms nothing; what it sends is as old as it says.
func TestAgeIsTheExporters(t *testing.T) {
	b := newBench(t, nil)
	b.source.set(func() { b.source.age = 11 })
	b.run("a")
	b.await("it acts on nothing", func() bool { s := b.State(); return !s.Ready && strings.Contains(s.Trouble, "old") })
}

// A restarted exporter counts from 1 again.
func TestRestartedExporterIsHeard(t *testing.T) {
	b := newBench(t, nil)
	b.source.set(func() { b.source.seq = 1000 })
	b.run("a")
	b.await("it is ready", func() bool { return b.State().Ready })
	b.source.set(func() { b.source.name, b.source.seq = "another run", 1 })
	b.run("b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
}

// A notification that came in before the clock was set back takes effect now, not an hour
// later, and its lease is not an hour longer.
func TestAlertOfBeforeTheClockWasSetBack(t *testing.T) {
	b := newBench(t, nil)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	o := b.options()
	o.Now = func() time.Time { return time.Now().Add(time.Hour) }
	before, err := actuator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	err = before.Receive(t.Context(), webhook.Message{Version: "4", Alerts: []webhook.Alert{contention(webhook.Firing)}})
	if err = errors.Join(err, before.Close()); err != nil {
		t.Fatal(err)
	}
	b.run("a", "b")
	b.restart(nil)
	b.decided("of the alert", func(d decision.Decision) bool { return d.Kind == decision.Alert && d.Result == decision.Opened })
	b.await("the lease is in the state", func() bool { return len(b.State().Leases) == 1 })
	if l := b.State().Leases[0]; time.Until(l.Expires) > 6*time.Minute {
		t.Errorf("the lease lasts until %v", l.Expires)
	}
}
