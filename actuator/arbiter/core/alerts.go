package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// Message is one notification by webhook. Its texts are bounded in length.
type Message struct {
	Alerts []Alert
	// Truncated counts the alerts that the sender omitted.
	Truncated uint64
	// Received is when it arrived.
	Received time.Time
}

// Alert is one alert of a message.
type Alert struct {
	Name, Fingerprint string
	// Action is what it asks for; empty: nothing.
	Action   string
	Resolved bool
	StartsAt time.Time // zero if the sender does not say
	Labels   map[string]string
}

func (a Alert) status() string {
	if a.Resolved {
		return "resolved"
	}
	return "firing"
}

// Unreadable records that a message of the inbox was dropped.
func (k *Core) Unreadable(now time.Time, err error) {
	k.now = now
	k.decide(decision.Decision{Kind: decision.Alert, Result: decision.Failed, Reason: "a message in the inbox cannot be read; it is dropped", Error: err.Error()})
}

// maxReported bounds the decisions recorded for one message, apart from those that open a lease: a
// message can hold 22,000 alerts.
const maxReported = 256

// Awaits reports whether the message has to stay in the inbox: an alert is about a GPU or a container, and the exporter
// has read none yet, since it has only just begun. After its lease the message would change nothing: then it waits no
// more, so on a node where nothing can be read the inbox holds at most what arrives within a lease.
func (k *Core) Awaits(now time.Time, m Message) bool {
	s := k.facts.snap
	noGPUs := len(s.GPUs) == 0 && !s.Health.DeviceUp
	noContainers := len(s.Containers) == 0 && !s.Health.EngineUp
	if !Earlier(m.Received, now).Add(k.config.Lease).After(now) {
		return false
	}
	return slices.ContainsFunc(m.Alerts, func(a Alert) bool {
		switch lease.Wish(a.Action) {
		case lease.Arbitrate, lease.Relieve:
			return noGPUs && !a.Resolved
		case lease.Pause, lease.Expedite:
			return noContainers && !a.Resolved
		default:
			return false
		}
	})
}

// Alerts decides about each alert of a message. The present snapshot must be younger than the
// message. Handling a message again changes nothing.
func (k *Core) Alerts(now time.Time, m Message) {
	k.now = now
	if m.Truncated > 0 {
		k.decide(decision.Decision{Kind: decision.Alert, Result: decision.Failed,
			Reason: fmt.Sprintf("the sender left out %d alerts; set max_alerts to 0 in Alertmanager's webhook_config", m.Truncated)})
	}
	received, reported := Earlier(m.Received, now), 0
	for _, a := range m.Alerts {
		result, reason, target := k.judge(a, received)
		k.count(Alerts, 1, knownAction(a.Action), string(result))
		if result != decision.Opened {
			if reported++; reported > maxReported {
				continue
			}
		}
		k.report(a, result, reason, target)
	}
	if reported > maxReported {
		k.decide(decision.Decision{Kind: decision.Alert, Result: decision.Ignored,
			Reason: fmt.Sprintf("what became of %d more alerts of the same message is not told one by one; laxity_actuator_alerts_total counts them", reported-maxReported)})
	}
}

// Earlier converts the moment t, read from disk, to the monotonic clock, so that ages stay right
// when the wall clock is set. If the wall clock was set back since t, it returns now.
func Earlier(t, now time.Time) time.Time { return now.Add(min(0, t.Sub(now))) }

// report records what became of an alert.
func (k *Core) report(a Alert, result decision.Result, reason, target string) {
	d := decision.Decision{
		Kind: decision.Alert, Result: result, Reason: reason, Node: a.Labels["node"],
		Alert: a.Name, Status: a.status(), Fingerprint: a.Fingerprint, Container: a.Labels["container"],
	}
	if target != "" && a.Labels["gpu"] == target {
		d.GPUs = []string{target}
	}
	k.decideOnce("alert/"+a.Action+"/"+a.Fingerprint+"/"+a.status(), d)
}

// knownAction keeps the sender's texts out of the labels of metrics.
func knownAction(action string) string {
	switch lease.Wish(action) {
	case "":
		return "none"
	case lease.Arbitrate, lease.Relieve, lease.Pause, lease.Expedite, lease.Drain:
		return action
	default:
		return "other"
	}
}

// judge opens, renews or resolves the lease that an alert asks for, or says why not.
func (k *Core) judge(a Alert, received time.Time) (r decision.Result, reason, target string) {
	if node := a.Labels["node"]; node != "" && k.node() != "" && node != k.node() {
		return decision.Ignored, fmt.Sprintf("it is about node %s and this is %s; route it to the actuator there", node, k.node()), ""
	}
	wish := lease.Wish(a.Action)
	switch wish {
	case lease.Arbitrate, lease.Pause, lease.Drain:
	case lease.Relieve:
		if !k.config.Profile().Relieves {
			return decision.Ignored, fmt.Sprintf("policy %s stops nobody because memory is nearly full; p3 does, as in its paper", k.config.Policy), ""
		}
	case lease.Expedite:
		if !k.config.Profile().Expedites {
			return decision.Ignored, fmt.Sprintf("policy %s moves nobody to the front", k.config.Policy), ""
		}
	case "":
		return decision.Ignored, "it has no label `action`, so it is for people alone", ""
	default:
		return decision.Ignored, fmt.Sprintf("action %q is not known; write arbitrate, relieve, pause, expedite or drain", wish), ""
	}
	if a.StartsAt.IsZero() { // a hand-made alert
		a.StartsAt = received
	}
	if a.Resolved {
		if k.leases.Resolve(wish, a.Fingerprint, a.StartsAt, received) {
			return decision.Done, "resolved; its lease closes when the snapshot confirms it", a.Labels["gpu"]
		}
		return decision.Ignored, "resolved, and no lease of it is open", ""
	}
	target, err := k.target(wish, a)
	if err != nil {
		return decision.Ignored, err.Error(), ""
	}
	l := lease.Lease{
		Wish: wish, Target: target, Alert: a.Name, Fingerprint: a.Fingerprint,
		StartsAt: a.StartsAt, Opened: received, Expires: received.Add(k.config.Lease),
	}
	if !l.Expires.After(k.now) {
		return decision.Ignored, "it waited in the inbox for longer than its lease", target
	}
	if full := k.leases.Room(l); full != "" {
		return decision.Ignored, full, target
	}
	opened, stale := k.leases.Fire(l)
	switch {
	case stale:
		return decision.Ignored, "it is a late repeat: this firing was resolved already", target
	case opened:
		return decision.Opened, k.confirm(wish, target), target
	default:
		return decision.Renewed, k.confirm(wish, target), target
	}
}

// Fingerprint replaces the one that a hand-made alert lacks.
func Fingerprint(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%q,", name, labels[name])
	}
	return b.String()
}

// target finds in the snapshot what the alert is about.
func (k *Core) target(w lease.Wish, a Alert) (string, error) {
	switch w {
	case lease.Drain:
		return k.node(), nil
	case lease.Pause, lease.Expedite:
		return k.targetContainer(w, a.Labels["container"])
	default:
		gpu := a.Labels["gpu"]
		if gpu == "" {
			return "", fmt.Errorf("it has no label `gpu`; %s needs {node, gpu}", w)
		}
		if _, ok := k.facts.snap.FindGPU(gpu); !ok {
			return "", fmt.Errorf("the exporter knows no GPU %q", gpu)
		}
		return gpu, nil
	}
}

// targetContainer finds the container that an alert, or a person, is about.
func (k *Core) targetContainer(w lease.Wish, name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("it has no label `container`; %s needs {node, container}", w)
	}
	c, ok := k.facts.snap.FindContainer(name)
	switch {
	case !ok:
		return "", fmt.Errorf("the exporter knows no running container %q", name)
	case !c.Spec.Managed:
		return "", fmt.Errorf("container %s has none of Laxity's labels, so it is only observed", c.Name)
	case k.denied(c.ID):
		return "", fmt.Errorf("container %s is not on the allow-list (--containers.label), so it is only observed", c.Name)
	case w == lease.Pause && c.Spec.NeverPause:
		return "", fmt.Errorf("container %s is labelled laxity.pause=never", c.Name)
	case w == lease.Expedite && (c.Spec.Class == task.ClassBatch || k.unfinished(c.ID) == 0):
		return "", fmt.Errorf("container %s has no unfinished task with a deadline", c.Name)
	}
	return c.ID, nil
}

// confirm says whether the snapshot confirms a firing alert. The lease stays open in any case:
// while the alert fires, its reason may return at any moment. But only the snapshot decides what is
// done.
func (k *Core) confirm(w lease.Wish, target string) string {
	switch w {
	case lease.Arbitrate:
		n := len(k.facts.snap.TasksOn(target))
		switch {
		case k.config.Arbitrate == config.Never:
			return fmt.Sprintf("%d unfinished tasks; arbitration is off (--arbitrate=never)", n)
		case n < 2:
			return fmt.Sprintf("not confirmed: %d unfinished task on the GPU, nothing to arbitrate yet", n)
		}
		return fmt.Sprintf("confirmed: %d unfinished tasks on the GPU", n)
	case lease.Relieve:
		g, _ := k.facts.snap.FindGPU(target)
		if m := memoryShare(g); m < plan.PressureBegins {
			return fmt.Sprintf("not confirmed: memory use is %.1f %%, nothing to relieve yet", 100*m)
		}
		return fmt.Sprintf("confirmed: memory use is %.1f %%", 100*memoryShare(g))
	case lease.Pause:
		return "the container is to be paused"
	case lease.Expedite:
		return "its task goes to the front"
	default:
		return "no new placements on this node"
	}
}
