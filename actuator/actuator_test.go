package actuator_test

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/journal/journaltest"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
)

func TestAlertPausesAndResolvedLetsGo(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b", "c")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b c", "a", "b", "c")

	b.source.end("a")
	b.awaitPaused("c", "a", "b", "c")
	b.source.end("b")
	b.awaitPaused("", "a", "b", "c")

	b.send(contention(webhook.Resolved))
	b.decided("the lease closes", func(d decision.Decision) bool {
		return d.Kind == decision.Lease && strings.Contains(d.Reason, "resolved and confirmed")
	})
	if got := b.engine.Calls(); !slices.Equal(got[2:], []string{"unpause b", "unpause c"}) {
		t.Errorf("calls: %v", got)
	}
	d := b.decided("of the pause", func(d decision.Decision) bool { return d.Kind == decision.Pause && d.ContainerID == "b" })
	if d.Reason != "waits for name-a on GPU-0" || d.Container != "name-b" || d.Policy != "fifo" || d.Cause != "arbitrate" {
		t.Errorf("decision: %+v", d)
	}
}

func TestResolvedIsNotBelievedWithoutTheSnapshot(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
	b.send(contention(webhook.Resolved))
	b.decided("resolved seen", func(d decision.Decision) bool { return d.Status == webhook.Resolved })
	b.source.set(func() {})
	if b.awaitHandled(); !b.isPaused("b") {
		t.Error("released though two tasks contend")
	}
	b.source.end("a")
	b.awaitPaused("", "a", "b")
}

func TestShutdownLetsGo(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b", "c")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b c", "a", "b", "c")
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.awaitPaused("", "a", "b", "c")
	j, _ := journal.Open(b.dir)
	if holds, err := j.List(); err != nil || len(holds) > 0 {
		t.Errorf("on record: %v %v", holds, err)
	}
	// The lease survived: a new actuator goes on where this one stopped.
	b.restart(nil)
	b.awaitPaused("b c", "a", "b", "c")
}

func TestPersonsUnpauseIsRespected(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b", "c")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b c", "a", "b", "c")
	b.engine.SetPaused("b", false)
	b.decided("a person", func(d decision.Decision) bool {
		return d.Kind == decision.Hold && d.ContainerID == "b" && strings.Contains(d.Reason, "a person unpaused it")
	})
	b.awaitPaused("c", "a", "b", "c")
	n := len(b.engine.Calls())
	b.source.set(func() {})
	b.source.set(func() {})
	b.seen()
	if got := b.engine.Calls(); len(got) != n {
		t.Errorf("acted again: %v", got)
	}
	// A later task of the same container is held again.
	b.source.end("b")
	b.await("the exemption ends", func() bool { return len(b.State().Exemptions) == 0 })
	b.source.set(func() {
		b.source.tasks = append(b.source.tasks, task.Task{ID: "second", PID: 999, ContainerID: "b", Container: "name-b",
			GPUs: []string{gpu0}, State: task.Running, Start: task.Mark{Time: time.Now()}})
	})
	b.awaitPaused("b c", "a", "b", "c")
}

// A held container that is started again is not one that a person has unpaused: its new
// task waits like any other.
func TestStartedAgainIsHeldAgain(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b", "c")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b c", "a", "b", "c")
	b.engine.Run("b")
	b.source.set(func() {
		for i, x := range b.source.tasks {
			if x.ContainerID == "b" {
				b.source.tasks[i].ID = "second"
			}
		}
	})
	b.awaitPaused("b c", "a", "b", "c")
	if e := b.State().Exemptions; len(e) > 0 {
		t.Errorf("%+v", e)
	}
}

func TestPersonsPauseStays(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b", "c")
	b.engine.SetPaused("b", true)
	b.source.set(func() {})
	b.send(contention(webhook.Firing))
	b.awaitPaused("b c", "a", "b", "c")
	b.source.end("a") // c is next: b is not ours
	b.awaitPaused("b", "a", "b", "c")
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if !b.isPaused("b") {
		t.Error("a person's pause was undone")
	}
}

func TestContainerRemovedWhilePaused(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
	b.await("the hold shows", func() bool { return len(b.State().Holds) == 1 })
	b.engine.Remove("b")
	b.source.remove("b")
	j, _ := journal.Open(b.dir)
	b.await("the hold is off the record", func() bool {
		holds, err := j.List()
		return err == nil && len(holds) == 0 && len(b.State().Holds) == 0
	})
}

func TestOnlyManagedContainersAreTouched(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "plain", "never", "b")
	b.source.set(func() {
		b.source.containers[1].Spec.Managed = false
		b.source.containers[2].Spec.NeverPause = true
	})
	b.send(contention(webhook.Firing),
		alert(webhook.Firing, "User", "pause", "container", "name-plain"),
		alert(webhook.Firing, "User", "pause", "container", "name-never"))
	b.awaitPaused("b", "a", "plain", "never", "b")
	for _, name := range []string{"name-plain", "name-never"} {
		b.decided("ignored", func(d decision.Decision) bool { return d.Container == name && d.Result == decision.Ignored })
	}
}

func TestPauseAlert(t *testing.T) {
	b := newBench(t, nil)
	b.run("a")
	fire := alert(webhook.Firing, "User", "pause", "container", "name-a")
	b.send(fire)
	b.awaitPaused("a", "a")
	fire.Status = webhook.Resolved
	b.send(fire)
	b.awaitPaused("", "a")
	// The same firing again, late, changes nothing.
	fire.Status = webhook.Firing
	b.send(fire)
	b.decided("a late repeat", func(d decision.Decision) bool { return strings.Contains(d.Reason, "late repeat") })
	if b.isPaused("a") {
		t.Error("a late repeat paused the container")
	}
}

// As P3 has it. Other policies stop nobody because memory is nearly full.
func TestRelieve(t *testing.T) {
	for name, tt := range map[string]struct {
		used  uint64 // at last
		calls []string
	}{
		"still rather full": {92, []string{"pause c"}},
		"there is room":     {80, []string{"pause c", "unpause c"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(o *actuator.Options) { o.Config.Policy = "p3" })
			b.run("a", "b", "c")
			b.source.set(func() { b.source.gpus[0].MemoryUsed = 97 })
			b.engine.FailWith(func(call, _ string) error {
				if call == "pause" { // which is enough
					b.source.set(func() { b.source.gpus[0].MemoryUsed = 92 })
				}
				return nil
			})
			fire := alert(webhook.Firing, "GPUMemoryPressure", "relieve", "gpu", gpu0)
			b.send(fire)
			b.awaitPaused("c", "a", "b", "c")
			fire.Status = webhook.Resolved
			b.send(fire)
			b.awaitHandled()
			if b.source.set(func() { b.source.gpus[0].MemoryUsed = tt.used }); tt.used < 92 {
				b.awaitPaused("", "a", "b", "c")
			}
			b.calledOnly(tt.calls...)
		})
	}
}

func TestAlertsThatChangeNothing(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	elsewhere := contention(webhook.Firing)
	elsewhere.Labels["node"] = "there"
	for _, c := range []struct {
		alert webhook.Alert
		why   string
	}{
		{elsewhere, "route it to the actuator there"},
		{alert(webhook.Firing, "GPUTaskDeadlineMissed", ""), "for people alone"},
		{alert(webhook.Firing, "GPUTaskDeadlineAtRisk", "expedite", "container", "name-a"), "policy fifo moves nobody to the front"},
		{alert(webhook.Firing, "GPUMemoryPressure", "relieve", "gpu", gpu0), "policy fifo stops nobody because memory is nearly full"},
		{alert(webhook.Firing, "X", "explode"), "write arbitrate, relieve, pause, expedite or drain"},
		{alert(webhook.Firing, "X", "arbitrate"), "no label `gpu`"},
		{alert(webhook.Firing, "X", "arbitrate", "gpu", "GPU-9"), "knows no GPU"},
		{alert(webhook.Firing, "X", "pause", "container", "nobody"), "knows no running container"},
		{contention(webhook.Resolved), "no lease of it is open"},
	} {
		b.send(c.alert)
		b.decided(c.why, func(d decision.Decision) bool {
			return d.Kind == decision.Alert && d.Result == decision.Ignored && strings.Contains(d.Reason, c.why)
		})
	}
	b.calledOnly()
}

func TestDrain(t *testing.T) {
	b := newBench(t, nil)
	b.send(alert(webhook.Firing, "GPUNodeNotProvisionable", "drain"))
	b.await("drained", func() bool { return b.State().Drained })
	b.send(alert(webhook.Resolved, "GPUNodeNotProvisionable", "drain"))
	b.await("not drained", func() bool { return !b.State().Drained })
}

func TestDryRunDecidesAndTouchesNothing(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) { o.DryRun = true })
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.decided("of a pause", func(d decision.Decision) bool {
		return d.Kind == decision.Pause && d.ContainerID == "b" && d.Result == decision.DryRun
	})
	b.source.end("a")
	b.decided("of an unpause", func(d decision.Decision) bool {
		return d.Kind == decision.Unpause && d.ContainerID == "b" && d.Result == decision.DryRun
	})
	b.calledOnly()
}

func TestNeverArbitrates(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) { o.Config.Arbitrate = config.Never })
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.decided("arbitration is off", func(d decision.Decision) bool { return strings.Contains(d.Reason, "arbitration is off") })
	b.calledOnly()
}

func TestAlwaysArbitratesWithoutAnAlert(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) { o.Config.Arbitrate = config.Always })
	b.run("a", "b")
	b.awaitPaused("b", "a", "b")
}

func TestMaxHold(t *testing.T) {
	var now clock
	b := newBench(t, func(o *actuator.Options) {
		o.Config.MaxHold = time.Minute
		o.Now = now.now
	})
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
	now.set(time.Minute)
	b.awaitPaused("", "a", "b")
	d := b.decided("of the unpause", func(d decision.Decision) bool { return d.Kind == decision.Unpause })
	if !strings.Contains(d.Reason, "--max-hold") {
		t.Errorf("reason: %s", d.Reason)
	}
	if e := b.State().Exemptions; len(e) != 1 || e[0].ContainerID != "b" {
		t.Errorf("exemptions: %+v", e)
	}
}

func TestLeaseEndsWithoutRenewal(t *testing.T) {
	var now clock
	b := newBench(t, func(o *actuator.Options) {
		o.Config.Lease, o.HoldLease = time.Minute, time.Hour
		o.Now = now.now
	})
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
	now.set(time.Minute)
	b.awaitPaused("", "a", "b")
	b.decided("the lease closes", func(d decision.Decision) bool {
		return d.Kind == decision.Lease && strings.Contains(d.Reason, "not seen firing")
	})
}

// A hold whose record cannot be renewed ends with the lease on record, which the guardian goes by.
func TestHoldEndsWithTheLeaseOnRecord(t *testing.T) {
	var now clock
	b := newBench(t, func(o *actuator.Options) { o.HoldLease, o.Now = time.Minute, now.now })
	b.run("a")
	b.seen()
	b.must(b.Pause(t.Context(), alice, "a"))
	b.await("it is held", func() bool { return len(b.State().Holds) == 1 })
	writable := journaltest.ReadOnly(t, filepath.Join(b.dir, "holds"))
	now.set(40 * time.Second) // it is renewed, in vain
	b.source.set(func() {})
	b.seen()
	b.source.set(func() { b.source.health.DeviceUp = false })
	if b.seen(); !b.isPaused("a") {
		t.Error("it is released before its lease ends")
	}
	now.set(time.Minute)
	b.awaitPaused("", "a")
	writable()
}

func TestBlindnessLetsGo(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) { o.HoldLease = 500 * time.Millisecond })
	b.run("a", "b")
	b.send(contention(webhook.Firing))
	b.awaitPaused("b", "a", "b")
	b.source.set(func() { b.source.health.DeviceUp = false })
	b.awaitPaused("", "a", "b")
	if code, body := b.get("/-/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "cannot read the GPUs") {
		t.Errorf("ready: %d %s", code, body)
	}
	b.source.set(func() { b.source.health.DeviceUp = true })
	b.awaitPaused("b", "a", "b")
}

// An actuator that is told to end while it waits for another one's folder ends cleanly.
func TestEndBeforeTheBeginning(t *testing.T) {
	b := newBench(t, nil)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	other, err := journal.TryLock(journal.ActuatorLock(b.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Unlock()
	log := &lines{wrote: make(chan string, 100)}
	o := b.options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	second, err := actuator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- second.Run(ctx) }()
	for line := range log.wrote {
		if strings.Contains(line, "another actuator holds") {
			break
		}
	}
	end()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// lines hands on each line of a log.
type lines struct{ wrote chan string }

func (l *lines) Write(line []byte) (int, error) {
	l.wrote <- string(line)
	return len(line), nil
}
