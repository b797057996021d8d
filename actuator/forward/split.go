package forward

import (
	"time"

	"github.com/laxity/laxity/actuator/webhook"
)

// split takes the alerts out that are about a node that is known and not own.
// The rest keeps its order, and everything else of the message. Pure.
func split(own string, m webhook.Message, known func(node string) bool) (rest webhook.Message, others map[string][]webhook.Alert) {
	rest = m
	rest.Alerts = nil
	others = map[string][]webhook.Alert{}
	for _, a := range m.Alerts {
		if node := a.Labels["node"]; node != "" && node != own && known(node) {
			others[node] = append(others[node], a)
			continue
		}
		rest.Alerts = append(rest.Alerts, a)
	}
	return rest, others
}

// item is one alert that waits to be passed on, in its latest state.
type item struct {
	Key      string        `json:"-"`
	Sequence uint64        `json:"sequence"`
	Received time.Time     `json:"received"`
	Alert    webhook.Alert `json:"alert"`
	// Receiver and ExternalURL are of the message that it came with.
	Receiver    string `json:"receiver"`
	ExternalURL string `json:"externalURL"`
	size        int    // bytes on disk
}

// supersedes reports whether a comes after b, which waits and is about the same
// alert: notifications may come twice and out of order. Pure.
func supersedes(a, b webhook.Alert) bool {
	if !a.StartsAt.Equal(b.StartsAt) && !a.StartsAt.IsZero() && !b.StartsAt.IsZero() {
		return a.StartsAt.After(b.StartsAt)
	}
	return a.Status == webhook.Resolved || b.Status != webhook.Resolved || a.StartsAt.IsZero()
}

// message puts items into one notification, as Alertmanager with group_by [node]
// posts them. There must be at least one.
func message(node string, items []item) webhook.Message {
	m := webhook.Message{
		Version: webhook.Version, GroupKey: `{}:{node="` + node + `"}`, Status: webhook.Resolved,
		Receiver: items[0].Receiver, ExternalURL: items[0].ExternalURL,
		GroupLabels: map[string]string{"node": node},
	}
	var labels, annotations []map[string]string
	for _, i := range items {
		if i.Alert.Status == webhook.Firing {
			m.Status = webhook.Firing
		}
		m.Alerts = append(m.Alerts, i.Alert)
		labels, annotations = append(labels, i.Alert.Labels), append(annotations, i.Alert.Annotations)
	}
	m.CommonLabels, m.CommonAnnotations = common(labels), common(annotations)
	return m
}

// common returns the pairs that all sets have.
func common(sets []map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range sets[0] {
		out[k] = v
		for _, s := range sets[1:] {
			if w, ok := s[k]; !ok || w != v {
				delete(out, k)
				break
			}
		}
	}
	return out
}
