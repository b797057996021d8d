package actuator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
)

// consume lets the messages take effect that came in before the present snapshot
// was asked for, of which last was the last. A message leaves the inbox once its leases are on disk; if we
// die in between, it comes again and changes nothing.
func (l *loop) consume(last uint64) {
	for {
		e, ok, err := l.inbox.Peek()
		if err != nil {
			l.log.Error("cannot read the inbox", "err", err)
			l.fetchAt = l.o.Now().Add(time.Second)
			return
		}
		if !ok || e.ID > last {
			return
		}
		var m webhook.Message
		if err := json.Unmarshal(e.Payload, &m); err != nil {
			l.decide(decision.Decision{Kind: decision.Alert, Result: decision.Failed, Reason: "a message in the inbox cannot be read; it is dropped", Error: err.Error()})
		}
		if m.TruncatedAlerts > 0 {
			l.decide(decision.Decision{Kind: decision.Alert, Result: decision.Failed,
				Reason: fmt.Sprintf("the sender left out %d alerts; set max_alerts to 0 in Alertmanager's webhook_config", m.TruncatedAlerts)})
		}
		l.alerts(m.Alerts, earlier(e.Received, l.o.Now()))
		if err := l.book.Save(); err != nil {
			l.log.Error("cannot keep what alerts ask for; they stay in the inbox", "err", err)
			l.fetchAt = l.o.Now().Add(time.Second)
			return
		}
		if err := l.inbox.Remove(e.ID); err != nil {
			l.log.Error("cannot take a message out of the inbox", "err", err)
			l.fetchAt = l.o.Now().Add(time.Second)
			return
		}
	}
}

// earlier returns the moment t, read from disk, with the monotonic clock, so that ages
// counted from it stay right when the wall clock is set; now, if that has been set back since t.
func earlier(t, now time.Time) time.Time { return now.Add(min(0, t.Sub(now))) }

// maxTold bounds the decisions on record about one message, besides those that open
// something: a message can hold 22,000 alerts.
const maxTold = 256

// alerts decides what becomes of each alert of a message.
func (l *loop) alerts(all []webhook.Alert, received time.Time) {
	told := 0
	for _, a := range all {
		a = a.Shortened()
		result, reason, target := l.judge(a, received)
		l.metrics.Alerts.WithLabelValues(known(a.Action()), string(result)).Inc()
		if result != decision.Opened {
			if told++; told > maxTold {
				continue
			}
		}
		l.tell(a, result, reason, target)
	}
	if told > maxTold {
		l.decide(decision.Decision{Kind: decision.Alert, Result: decision.Ignored,
			Reason: fmt.Sprintf("what became of %d more alerts of the same message is not told one by one; laxity_actuator_alerts_total counts them", told-maxTold)})
	}
}

// tell puts on record what became of an alert.
func (l *loop) tell(a webhook.Alert, result decision.Result, reason, target string) {
	d := decision.Decision{
		Kind: decision.Alert, Result: result, Reason: reason, Node: a.Labels["node"],
		Alert: a.Name(), Status: a.Status, Fingerprint: a.Fingerprint, Container: a.Labels["container"],
	}
	if target != "" && a.Labels["gpu"] == target {
		d.GPUs = []string{target}
	}
	l.decideOnce("alert/"+a.Action()+"/"+a.Fingerprint+"/"+a.Status, d)
}

// known keeps what a sender writes out of the metrics' labels.
func known(action string) string {
	switch action {
	case "":
		return "none"
	case "arbitrate", "relieve", "pause", "expedite", "drain":
		return action
	default:
		return "other"
	}
}

func (l *loop) judge(a webhook.Alert, received time.Time) (r decision.Result, reason, target string) {
	if node := a.Labels["node"]; node != "" && l.node() != "" && node != l.node() {
		return decision.Ignored, fmt.Sprintf("it is about node %s and this is %s; route it to the actuator there", node, l.node()), ""
	}
	wish := state.Wish(a.Action())
	switch wish {
	case state.WishArbitrate, state.WishRelieve, state.WishPause, state.WishDrain:
	case state.WishExpedite:
		if !l.Config().scheme().expedites {
			return decision.Ignored, fmt.Sprintf("policy %s moves nobody to the front", l.Config().Policy), ""
		}
	case "":
		return decision.Ignored, "it has no label `action`, so it only tells people", ""
	default:
		return decision.Ignored, fmt.Sprintf("action %q is not known; write arbitrate, relieve, pause, expedite or drain", wish), ""
	}
	if a.StartsAt.IsZero() { // made by hand
		a.StartsAt = received
	}
	if a.Fingerprint == "" {
		a.Fingerprint = webhook.Short(fingerprint(a.Labels))
	}
	if a.Status == webhook.Resolved {
		if l.book.Resolve(wish, a.Fingerprint, a.StartsAt, received) {
			return decision.Done, "resolved; its lease closes when the snapshot confirms it", a.Labels["gpu"]
		}
		return decision.Ignored, "resolved, and no lease of it is open", ""
	}
	target, err := l.target(wish, a)
	if err != nil {
		return decision.Ignored, err.Error(), ""
	}
	lease := state.Lease{
		Wish: wish, Target: target, Alert: a.Name(), Fingerprint: a.Fingerprint,
		StartsAt: a.StartsAt, Opened: received, Expires: received.Add(l.Config().Lease),
	}
	if !lease.Expires.After(l.o.Now()) {
		return decision.Ignored, "it waited in the inbox for longer than its lease", target
	}
	if full := l.book.Room(lease); full != "" {
		return decision.Ignored, full, target
	}
	opened, stale := l.book.Fire(lease)
	switch {
	case stale:
		return decision.Ignored, "it is a late repeat: this firing was resolved already", target
	case opened:
		return decision.Opened, l.confirm(wish, target), target
	default:
		return decision.Renewed, l.confirm(wish, target), target
	}
}

// target finds in the snapshot what the alert is about.
func (l *loop) target(w state.Wish, a webhook.Alert) (string, error) {
	switch w {
	case state.WishDrain:
		return l.node(), nil
	case state.WishPause, state.WishExpedite:
		return l.targetContainer(w, a.Labels["container"])
	default:
		gpu := a.Labels["gpu"]
		if gpu == "" {
			return "", fmt.Errorf("it has no label `gpu`; %s needs {node, gpu}", w)
		}
		if _, ok := l.snap.FindGPU(gpu); !ok {
			return "", fmt.Errorf("the exporter knows no GPU %q", gpu)
		}
		return gpu, nil
	}
}

// targetContainer finds the container that the alert is about.
func (l *loop) targetContainer(w state.Wish, name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("it has no label `container`; %s needs {node, container}", w)
	}
	c, ok := l.snap.FindContainer(name)
	switch {
	case !ok:
		return "", fmt.Errorf("the exporter knows no running container %q", name)
	case !c.Spec.Managed:
		return "", fmt.Errorf("container %s has no laxity.* label, so it is only observed", c.Name)
	case l.denied(c.ID):
		return "", fmt.Errorf("container %s is not on the allow-list (--containers.label), so it is only observed", c.Name)
	case w == state.WishPause && c.Spec.NeverPause:
		return "", fmt.Errorf("container %s is labelled laxity.pause=never", c.Name)
	case w == state.WishExpedite && (c.Spec.Class == task.ClassBatch || l.unfinished(c.ID) == 0):
		return "", fmt.Errorf("container %s has no unfinished task with a deadline", c.Name)
	}
	return c.ID, nil
}

// unfinished counts the tasks of a container.
func (l *loop) unfinished(id string) (n int) {
	for _, t := range l.snap.Tasks {
		if t.ContainerID == id && t.State.Unfinished() {
			n++
		}
	}
	return n
}

// confirm says what the snapshot has to say to a firing alert. The lease is kept
// either way: the alert fires, so its reason may be back in a moment; but what is
// done rests on the snapshot alone.
func (l *loop) confirm(w state.Wish, target string) string {
	switch w {
	case state.WishArbitrate:
		n := len(l.snap.TasksOn(target))
		switch {
		case l.Config().Arbitrate == Never:
			return fmt.Sprintf("%d unfinished tasks; arbitration is off (--arbitrate=never)", n)
		case n < 2:
			return fmt.Sprintf("not confirmed: %d unfinished task on the GPU, nothing to arbitrate yet", n)
		}
		return fmt.Sprintf("confirmed: %d unfinished tasks on the GPU", n)
	case state.WishRelieve:
		g, _ := l.snap.FindGPU(target)
		if m := memoryShare(g); m < plan.PressureBegins {
			return fmt.Sprintf("not confirmed: memory use is %.1f %%, nothing to relieve yet", 100*m)
		}
		return fmt.Sprintf("confirmed: memory use is %.1f %%", 100*memoryShare(g))
	case state.WishPause:
		return "the container is to be paused"
	case state.WishExpedite:
		return "its task goes to the front"
	default:
		return "no new placements on this node"
	}
}

// lapse closes the leases that are over, or resolved and confirmed to be.
func (l *loop) lapse(now time.Time) {
	for _, lease := range l.book.Leases() {
		why := l.closing(lease, now)
		if why == "" {
			continue
		}
		l.book.Close(lease)
		d := decision.Decision{Kind: decision.Lease, Result: decision.Closed, Alert: lease.Alert, Fingerprint: lease.Fingerprint, By: lease.By,
			Cause: string(lease.Wish), Reason: why}
		if c, ok := l.snap.FindContainer(lease.Target); ok {
			d.Container, d.ContainerID = c.Name, c.ID
		} else if _, ok := l.snap.FindGPU(lease.Target); ok {
			d.GPUs = []string{lease.Target}
		}
		l.decide(d)
	}
	l.book.Sweep(now)
}

func (l *loop) closing(lease state.Lease, now time.Time) string {
	if !lease.Expires.After(now) && lease.By != "" {
		return "it lasted as long as is allowed (--max-hold)"
	}
	if !lease.Expires.After(now) {
		return "the alert was not seen firing for as long as its lease lasts"
	}
	if lease.Wish == state.WishExpedite && l.unfinished(lease.Target) == 0 {
		return "its task has ended"
	}
	if !lease.Resolved {
		return ""
	}
	switch lease.Wish {
	case state.WishArbitrate:
		if n := len(l.snap.TasksOn(lease.Target)); n > 1 {
			return ""
		} else {
			return fmt.Sprintf("resolved and confirmed: %d unfinished task on the GPU", n)
		}
	case state.WishRelieve:
		g, _ := l.snap.FindGPU(lease.Target)
		if m := memoryShare(g); m >= plan.PressureEnds {
			return ""
		}
		return fmt.Sprintf("resolved and confirmed: memory use is below %.0f %%", 100*plan.PressureEnds)
	default:
		return "resolved"
	}
}

// pardon ends the exemptions whose tasks are finished.
func (l *loop) pardon() {
	for _, e := range l.book.Exemptions() {
		unfinished := slices.ContainsFunc(l.snap.Tasks, func(t task.Task) bool {
			return slices.Contains(e.Tasks, t.ID)
		})
		_, asked := l.book.Find(state.WishPause, func(target string) bool { return target == e.ContainerID })
		if !unfinished && !asked {
			l.book.Forgive(e.ContainerID)
		}
	}
}

func memoryShare(g task.GPU) float64 {
	if g.MemoryTotal == 0 {
		return 0
	}
	return float64(g.MemoryUsed) / float64(g.MemoryTotal)
}

// fingerprint stands in for the one that a hand-made payload lacks.
func fingerprint(labels map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%q,", k, labels[k])
	}
	return b.String()
}
