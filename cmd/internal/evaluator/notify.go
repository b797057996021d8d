package evaluator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/rules"

	"github.com/laxity/laxity/actuator/webhook"
)

// firing returns the alerts that fire now.
func firing(groups []*rules.Group) []webhook.Alert {
	var active []webhook.Alert
	for _, g := range groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				if a.State != rules.StateFiring {
					continue
				}
				set := model.LabelSet{}
				for name, v := range a.Labels.Map() {
					set[model.LabelName(name)] = model.LabelValue(v)
				}
				active = append(active, webhook.Alert{
					Status:      webhook.Firing,
					Labels:      a.Labels.Map(),
					Annotations: a.Annotations.Map(),
					StartsAt:    a.FiredAt,
					Fingerprint: set.Fingerprint().String(),
				})
			}
		}
	}
	return active
}

// notifications are the alerts that were last notified as firing, by fingerprint.
type notifications map[string]*entry

type entry struct {
	alert webhook.Alert
	at    time.Time
}

// update takes the alerts that fire at now, and returns those to notify: new ones, those last
// notified at least resend ago, and, as resolved, those that fire no more.
func (l notifications) update(now time.Time, active []webhook.Alert, resend time.Duration) (due []webhook.Alert) {
	fires := make(map[string]bool, len(active))
	for _, a := range active {
		fires[a.Fingerprint] = true
		e := l[a.Fingerprint]
		switch {
		case e == nil:
			e = &entry{}
			l[a.Fingerprint] = e
		case now.Sub(e.at) < resend:
			e.alert = a
			continue
		}
		e.alert, e.at = a, now
		due = append(due, a)
	}
	for fingerprint, e := range l {
		if fires[fingerprint] {
			continue
		}
		delete(l, fingerprint)
		e.alert.Status, e.alert.EndsAt = webhook.Resolved, now
		due = append(due, e.alert)
	}
	return due
}

// outbox keeps the latest status of each alert that is yet to be delivered, so
// that a slow receiver costs bounded memory and never delays an evaluation.
type outbox struct {
	mu      sync.Mutex
	pending map[string]webhook.Alert
	order   []string // fingerprints, first come first served
	wake    chan struct{}
}

func newOutbox() *outbox {
	return &outbox{pending: map[string]webhook.Alert{}, wake: make(chan struct{}, 1)}
}

// put adds alerts; a later status replaces an undelivered one.
func (o *outbox) put(alerts ...webhook.Alert) {
	if len(alerts) == 0 {
		return
	}
	o.mu.Lock()
	for _, a := range alerts {
		if _, ok := o.pending[a.Fingerprint]; !ok {
			o.order = append(o.order, a.Fingerprint)
		}
		o.pending[a.Fingerprint] = a
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// back returns an undelivered alert to the outbox, unless a later status is in it.
func (o *outbox) back(a webhook.Alert) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.pending[a.Fingerprint]; ok {
		return
	}
	o.pending[a.Fingerprint] = a
	o.order = append([]string{a.Fingerprint}, o.order...)
}

func (o *outbox) take() (webhook.Alert, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.order) == 0 {
		return webhook.Alert{}, false
	}
	fingerprint := o.order[0]
	o.order = o.order[1:]
	a := o.pending[fingerprint]
	delete(o.pending, fingerprint)
	return a, true
}

// Waits after failed deliveries, the last one repeatedly.
var retryWaits = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second}

// deliver notifies until ctx ends.
func (o *outbox) deliver(ctx context.Context, notify func(context.Context, webhook.Message) error, logger *slog.Logger) {
	failures := 0
	for ctx.Err() == nil {
		a, ok := o.take()
		if !ok {
			select {
			case <-o.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := notify(ctx, message(a))
		if err == nil {
			failures = 0
			continue
		}
		o.back(a)
		if ctx.Err() != nil {
			return
		}
		if failures == 0 { // once for a series of failures
			logger.Warn("The actuator did not accept an alert; it will be sent again", "alert", a.Name(), "err", err)
		}
		wait := retryWaits[min(failures, len(retryWaits)-1)]
		failures++
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// message is the notification of one alert, as Alertmanager with group_by
// ['...'] posts it.
func message(a webhook.Alert) webhook.Message {
	return webhook.Message{
		Version:           webhook.Version,
		GroupKey:          "{}:{fingerprint=" + a.Fingerprint + "}",
		Status:            a.Status,
		Receiver:          "laxity-evaluator",
		GroupLabels:       a.Labels,
		CommonLabels:      a.Labels,
		CommonAnnotations: a.Annotations,
		Alerts:            []webhook.Alert{a},
	}
}
