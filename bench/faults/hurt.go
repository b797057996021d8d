package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/bench"
)

// window is in which a kill falls after an alert was accepted: reading, writing, and
// pausing take about as long.
const window = 150 * time.Millisecond

// startWindow is in which a kill falls after the actuator was started: it takes about
// that long to read what was accepted, to start its guardian, and to act.
const startWindow = 400 * time.Millisecond

// An alert must count until the next actuator runs, and for longer than a pause of which nobody knows
// whether the engine still carries it out keeps it from being tried again (10 s). So long each container
// runs where it ends with its engine, too: dockerd is in less and less haste to start again what ends
// sooner. Where its resolved is lost it counts for the short lease.
const (
	longLease  = 20 * time.Second
	shortLease = 2 * time.Second
)

// began is when alerts of the campaign began; the sender's clock does not matter.
var began = time.Unix(1_700_000_000, 0)

func (m *machine) contention() webhook.Alert {
	return webhook.Alert{Status: webhook.Firing, StartsAt: began, Fingerprint: "contention",
		Labels: map[string]string{"alertname": "GPUContention", "action": "arbitrate", "node": "local", "gpu": m.uuid}}
}

// wish asks for the pause of a worker.
func (m *machine) wish(fingerprint string, worker int) webhook.Alert {
	return webhook.Alert{Status: webhook.Firing, StartsAt: began, Fingerprint: fingerprint,
		Labels: map[string]string{"alertname": "User", "action": "pause", "node": "local", "container": m.workers[worker].Name}}
}

// kill ends the actuator that runs after it has accepted an alert; the next one must know
// of that.
func (m *machine) kill(ctx context.Context, number int) (bench.Row, error) {
	if _, err := m.post(ctx, m.contention()); err != nil { // renews the lease
		return nil, err
	}
	a := m.wish("kill-"+strconv.Itoa(number), m.random.IntN(len(m.workers)))
	accepted, err := m.post(ctx, a)
	if err != nil {
		return nil, err
	}
	moment := time.Duration(m.random.Int64N(int64(window)))
	time.Sleep(moment) // the moment is the point
	held, took, err := m.slay(ctx)
	if err != nil && !errors.Is(err, errNever) {
		return nil, err
	}
	r := bench.Row{"way": killed, "moment": moment.Seconds(), "held": held, "accepted": accepted, "stuck": m.stuck(ctx)}
	if r.Num("stuck") > 0 {
		m.explain(ctx, killed, number+1)
	}
	if err == nil {
		r["let_go"] = took.Seconds()
	}
	return r, m.recover(ctx, r, a)
}

// killEarly ends the actuator with an alert accepted, and the next one at a random
// moment of its start, while the guardian of the first may still be at work.
func (m *machine) killEarly(ctx context.Context, number int) (bench.Row, error) {
	if _, err := m.post(ctx, m.contention()); err != nil {
		return nil, err
	}
	a := m.wish("early-"+strconv.Itoa(number), m.random.IntN(len(m.workers)))
	accepted, err := m.post(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := m.murder(); err != nil {
		return nil, err
	}
	if err := m.begin(ctx, longLease); err != nil {
		return nil, err
	}
	moment := time.Duration(m.random.Int64N(int64(startWindow)))
	time.Sleep(moment) // the moment is the point
	held, took, err := m.slay(ctx)
	if err != nil && !errors.Is(err, errNever) {
		return nil, err
	}
	r := bench.Row{"way": early, "moment": moment.Seconds(), "held": held, "accepted": accepted, "stuck": 0}
	if err == nil {
		r["let_go"] = took.Seconds()
	}
	// A guardian that was just being started is not known yet.
	if m.until(ctx, "all run", func() bool { return m.stuck(ctx) == 0 }) != nil {
		r["stuck"] = m.stuck(ctx)
	}
	return r, m.recover(ctx, r, a)
}

// recover starts the actuator again, which must know of the alert, and ends that.
func (m *machine) recover(ctx context.Context, r bench.Row, a webhook.Alert) error {
	if err := m.start(ctx, longLease); err != nil {
		return err
	}
	accepted := r["accepted"] == true
	lost := 0
	if accepted && m.until(ctx, "the alert takes effect", func() bool { return m.knows(ctx, a.Fingerprint) }) != nil {
		lost = 1
	}
	r["lost"] = lost
	a.Status = webhook.Resolved
	if _, err := m.post(ctx, a); err != nil {
		return err
	}
	if err := m.until(ctx, "the alert is over", func() bool { return !m.knows(ctx, a.Fingerprint) }); err != nil {
		return err
	}
	return m.wronged(ctx, r)
}

func (m *machine) knows(ctx context.Context, fingerprint string) bool {
	s, err := m.state(ctx)
	return err == nil && slices.ContainsFunc(s.Leases, func(l lease.Lease) bool { return l.Fingerprint == fingerprint && !l.Resolved })
}

// replay sends payloads out of order and twice, some of them never resolved.
func (m *machine) replay(ctx context.Context, count int) (bench.Row, error) {
	if err := m.stop(); err != nil {
		return nil, err
	}
	if err := m.start(ctx, shortLease); err != nil {
		return nil, err
	}
	var all []webhook.Alert
	for i := range count / 2 {
		a := m.contention()
		if i%3 > 0 {
			a = m.wish(fmt.Sprintf("worker-%d", i%3), i%3)
		}
		a.StartsAt = began.Add(time.Duration(1+i/20) * time.Second)
		if m.random.IntN(2) == 0 {
			a.Status = webhook.Resolved
		}
		all = append(all, a, a)
	}
	m.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	accepted := 0
	for _, a := range all {
		ok, err := m.post(ctx, a)
		if err != nil {
			return nil, err
		}
		if ok {
			accepted++
		}
	}
	r := bench.Row{"way": replayed, "sent": len(all), "accepted": accepted, "lost": 0, "stuck": 0}
	done := m.until(ctx, "all took effect", func() bool {
		s, err := m.state(ctx)
		return err == nil && s.Inbox == 0
	})
	if done != nil {
		s, err := m.state(ctx)
		if err != nil {
			return nil, err
		}
		r["lost"] = s.Inbox
	}
	if lost, err := m.ignoresNew(ctx); err != nil {
		return nil, err
	} else if lost {
		r["lost"] = r.Num("lost") + 1
	}
	// The resolved that were lost: their leases run out, and all goes on.
	if m.until(ctx, "all run", func() bool {
		s, err := m.state(ctx)
		return err == nil && len(s.Leases) == 0 && m.stuck(ctx) == 0
	}) != nil {
		r["stuck"] = m.stuck(ctx)
	}
	return r, errors.Join(m.wronged(ctx, r), m.stop())
}

// ignoresNew says whether an alert that fires anew after the replay is accepted but
// not acted on: what the actuator takes for old is in no inbox either.
func (m *machine) ignoresNew(ctx context.Context) (bool, error) {
	a := m.wish("worker-1", 1)
	a.StartsAt = began.Add(24 * time.Hour) // later than all of them
	accepted, err := m.post(ctx, a)
	if err != nil || !accepted {
		return false, err
	}
	return m.until(ctx, "an alert that fires anew takes effect", func() bool {
		s, err := m.state(ctx)
		return err == nil && slices.ContainsFunc(s.Leases, func(l lease.Lease) bool {
			return l.Fingerprint == a.Fingerprint && l.StartsAt.Equal(a.StartsAt)
		})
	}) != nil, nil
}
