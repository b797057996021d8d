package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
)

func TestFromAlertToPauseAndBack(t *testing.T) {
	n := newNode(t)
	a, b, c := n.tenant(), n.tenant(), n.tenant()
	n.start()
	n.contention(webhook.Firing)
	n.awaitPaused(b, true)
	n.awaitPaused(c, true)
	if n.docker.Paused(a) {
		t.Error("the first is paused")
	}

	n.end(a)
	n.awaitPaused(b, false)
	n.remove(c) // while it is paused
	n.await("it is off the record", func() bool { return n.onRecord() == 0 })

	n.contention(webhook.Resolved)
	n.await("the lease is closed", func() bool { return len(get[state.State](n, "/api/v1/state").Leases) == 0 })
	for _, d := range get[[]decision.Decision](n, "/api/v1/decisions") {
		if d.Kind == decision.Pause || d.Kind == decision.Unpause {
			t.Logf("%s %s %.1f ms: %s", d.Kind, d.Result, 1000*d.Seconds, d.Reason)
		}
	}

	for body, want := range map[string]int{"{": 400, `{"version":"3"}`: 400} {
		if code, text := n.post("/api/v1/alerts", body); code != want {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
}

func TestKilledActuatorStrandsNobody(t *testing.T) {
	n := newNode(t)
	a, b := n.tenant(), n.tenant()
	persons, _ := n.docker.Run(t, nil)
	n.docker.SetPaused(t, persons, true)
	for range 2 {
		n.start()
		n.contention(webhook.Firing)
		n.awaitPaused(b, true)
		if err := n.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		_ = n.cmd.Wait()
		n.awaitPaused(b, false)
		t.Logf("running again %v after the kill", time.Since(killed).Round(time.Millisecond))
		n.await("nothing is on record", func() bool { return n.onRecord() == 0 })
		n.await("the guardian has ended", func() bool { return !journal.Taken(journal.GuardianLock(n.dir)) })
	}
	if !n.docker.Paused(persons) || n.docker.Paused(a) {
		t.Error("the guardian touched what is not on record")
	}
}

func TestStoppedActuatorLetsGo(t *testing.T) {
	n := newNode(t)
	n.tenant()
	b := n.tenant()
	n.start()
	n.contention(webhook.Firing)
	n.awaitPaused(b, true)
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	// The record is looked at once: its guardian, which would release what is left, begins only now.
	if left := n.onRecord(); left != 0 {
		t.Errorf("it released nothing: %d on record", left)
	}
	n.awaitPaused(b, false) // Docker may say "paused" a moment too long
	n.await("its guardian has ended", func() bool { return !journal.Taken(journal.GuardianLock(n.dir)) })
}

func TestPeopleAreRespected(t *testing.T) {
	n := newNode(t)
	n.tenant()
	b, c := n.tenant(), n.tenant()
	n.docker.SetPaused(t, c, true)
	n.start()
	n.contention(webhook.Firing)
	n.awaitPaused(b, true)
	n.docker.SetPaused(t, b, false)
	n.await("it is noticed", func() bool {
		e := get[state.State](n, "/api/v1/state").Exemptions
		return len(e) == 1 && e[0].ContainerID == b
	})
	n.await("it is off the record", func() bool { return n.onRecord() == 0 })
	n.awaitPaused(b, false) // Docker may say "paused" a moment too long
	pauses := 0
	for _, d := range get[[]decision.Decision](n, "/api/v1/decisions") {
		if d.Kind == decision.Pause && d.Result == decision.Done && d.ContainerID == b {
			pauses++
		}
	}
	if pauses != 1 || !n.docker.Paused(c) {
		t.Errorf("a person was overruled: %d pauses", pauses)
	}
}

// A guardian that dies is started again.
func TestGuardianIsReplaced(t *testing.T) {
	n := newNode(t)
	n.start()
	log := n.log.String()
	i := strings.Index(log, "guardian started")
	if i < 0 {
		t.Fatal(log)
	}
	var pid int
	if _, err := fmt.Sscanf(log[i:], `guardian started" pid=%d`, &pid); err != nil {
		t.Fatal(err, log)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.await("another one is started", func() bool { return strings.Count(n.log.String(), "guardian started") == 2 })
	// The state may still tell of the first one: only the lock says that the second one is there.
	n.await("it watches", func() bool { return journal.Taken(journal.GuardianLock(n.dir)) })
	n.await("the state says so", func() bool { return get[state.State](n, "/api/v1/state").GuardianUp })
}

func TestDockerUnreachable(t *testing.T) {
	n := newNode(t)
	n.tenant()
	n.tenant()
	n.start("--docker.host=tcp://127.0.0.1:1")
	n.contention(webhook.Firing)
	n.await("it says so", func() bool {
		return slices.ContainsFunc(get[[]decision.Decision](n, "/api/v1/decisions"), func(d decision.Decision) bool {
			return d.Result == decision.Failed && strings.Contains(d.Error, "is it running")
		})
	})
	if n.onRecord() != 0 {
		t.Error("something is on record that never stopped")
	}
}
