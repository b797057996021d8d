package actuator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/webhook"
)

// One message with 22,000 alerts, each with a fingerprint of its own, opens as many
// leases as one target may have, and leaves a short record.
func TestOneMessageOpensFewLeases(t *testing.T) {
	var dir string
	b := newBench(t, func(o *actuator.Options) { dir = o.StateDir })
	b.run("a", "b")
	var flood []webhook.Alert
	for i := range 22_000 {
		a := contention(webhook.Firing)
		a.Fingerprint = fmt.Sprint("flood-", i)
		if i == 0 {
			a.Fingerprint = strings.Repeat("x", 100_000)
		}
		flood = append(flood, a)
	}
	b.send(flood...)
	b.decided("what was left out", func(d decision.Decision) bool { return strings.Contains(d.Reason, "more alerts of the same message") })
	b.await("the leases are published", func() bool { return len(b.State().Leases) > 0 })
	if n := len(b.State().Leases); n != 16 {
		t.Errorf("%d leases", n)
	}
	if all, _ := b.Decisions().Last(0); len(all) > 400 {
		t.Errorf("%d decisions", len(all))
	}
	info, err := os.Stat(filepath.Join(dir, "leases.json"))
	if err != nil || info.Size() > 64<<10 {
		t.Errorf("the leases take %v on the disk, %v", info.Size(), err)
	}
	// A wish of another kind, and a person's, are opened all the same.
	b.send(alert(webhook.Firing, "Drain", "drain"))
	b.await("another wish is opened", func() bool { return len(b.State().Leases) == 17 })
	if err := b.Pause(t.Context(), "somebody", "name-a"); err != nil {
		t.Error(err)
	}
}

// Notifications that wait are bounded in bytes as well as in number.
func TestInboxIsBoundedInBytes(t *testing.T) {
	a, err := actuator.New(actuator.Options{StateDir: t.TempDir(), Source: newSource(), InboxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // it does not run: nothing takes a message out
	large := contention(webhook.Firing)
	large.Annotations = map[string]string{"text": strings.Repeat("x", 600<<10)}
	m := webhook.Message{Version: "4", Alerts: []webhook.Alert{large}}
	if err := a.Receive(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := a.Receive(t.Context(), m); err == nil || !strings.Contains(err.Error(), "inbox is full") {
		t.Errorf("the second one: %v", err)
	}
}
