package check

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
)

// alertmanagerFacts are what an Alertmanager says, and what became of a test alert.
type alertmanagerFacts struct {
	at     Address
	err    error
	config amConfig
	bad    error // the configuration cannot be read
	// cluster is the state of its clustering: disabled, settling, ready; empty: not known.
	// peers is how many there are, itself included.
	cluster string
	peers   int
	// The test alert: sent says whether one was asked for.
	sent    bool
	sendErr error
	arrived time.Duration // 0: it did not
}

// amConfig is what counts here of Alertmanager's configuration.
type amConfig struct {
	Route     amRoute `yaml:"route"`
	Receivers []struct {
		Name     string `yaml:"name"`
		Webhooks []struct {
			URL          string `yaml:"url"`
			SendResolved *bool  `yaml:"send_resolved"`
			MaxAlerts    int    `yaml:"max_alerts"`
		} `yaml:"webhook_configs"`
	} `yaml:"receivers"`
}

type amRoute struct {
	Receiver       string    `yaml:"receiver"`
	RepeatInterval string    `yaml:"repeat_interval"`
	GroupWait      string    `yaml:"group_wait"`
	Routes         []amRoute `yaml:"routes"`
}

func gatherAlertmanager(ctx context.Context, o Options) (f alertmanagerFacts) {
	f.at = o.Alertmanager
	var status struct {
		Config  struct{ Original string }
		Cluster struct {
			Status string
			Peers  []struct{}
		}
	}
	if f.err = fetch(ctx, f.at, "/api/v2/status", nil, &status); f.err != nil {
		return f
	}
	f.cluster, f.peers = status.Cluster.Status, len(status.Cluster.Peers)
	f.bad = yaml.Unmarshal([]byte(status.Config.Original), &f.config)
	if f.sent = o.SendTestAlert; f.sent {
		f.arrived, f.sendErr = sendTestAlert(ctx, f.at, o.Actuator)
	}
	return f
}

// testAction is none that an actuator knows: it notes the alert and does nothing.
const testAction = "laxity-check"

// sendTestAlert posts an alert and waits until the actuator has noted it.
func sendTestAlert(ctx context.Context, alertmanager, actuator Address) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	name := "LaxityCheck" + rand.Text()[:8]
	began := time.Now()
	alert := map[string]any{
		"labels":      map[string]string{"alertname": name, "action": testAction},
		"annotations": map[string]string{"summary": "A test by laxity check; do nothing."},
		"startsAt":    began, "endsAt": began.Add(10 * time.Second),
	}
	if err := fetch(ctx, alertmanager, "/api/v2/alerts", []any{alert}, nil); err != nil {
		return 0, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var noted []decision.Decision
		if err := fetch(ctx, actuator, "/api/v1/decisions?limit=1000", nil, &noted); err != nil && ctx.Err() == nil {
			return 0, fmt.Errorf("sent; whether it arrived is not known: %w", err)
		}
		if slices.ContainsFunc(noted, func(d decision.Decision) bool { return d.Alert == name }) {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, nil
		case <-tick.C:
		}
	}
}

func (f alertmanagerFacts) judge() []Finding {
	out := findings{area: "Alertmanager"}
	switch {
	case f.err != nil:
		out.away(f.at, f.err, "no alert reaches the actuator", "laxity up needs none; for a fleet see compose/README.md; elsewhere: --alertmanager.url")
		return out.list
	case f.bad != nil:
		out.add(Warn, "configuration", f.bad.Error(), "it cannot be judged", "--send-test-alert tries it")
		return out.list
	}
	out.ok("running", f.at.URL)
	f.judgeConfig(&out)
	if f.cluster != "" && f.cluster != "disabled" && f.peers <= 1 {
		out.add(Warn, "clustering", "it clusters, and is alone", "after each start the first notification waits for up to 10 s", "start Alertmanager with --cluster.listen-address= (Debian: ARGS in /etc/default/prometheus-alertmanager)")
	}
	switch {
	case !f.sent:
		out.add(Skip, "test alert", "not sent", "", "--send-test-alert posts one, which does nothing, and waits for it at the actuator")
	case f.sendErr != nil:
		out.add(Fail, "test alert", f.sendErr.Error(), "whether alerts reach the actuator is not known", "")
	case f.arrived == 0:
		out.add(Fail, "test alert", "the actuator did not see it within 15 s", "alerts do not reach the actuator", "fix the failures above first; then add a route with matchers action=~\".+\" to its webhook, as in compose/alertmanager.yml, with its token or password; Alertmanager's log says what the actuator answers")
	default:
		out.ok("test alert", fmt.Sprintf("reached the actuator after %d ms", f.arrived.Milliseconds()))
	}
	return out.list
}

// ours reports whether a receiver's URL is an actuator's. Alertmanager may hide it.
func ours(address string) (is, hidden bool) {
	if address == "<secret>" {
		return true, true
	}
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(u.Path, "/api/v1/alerts"), false
}

func (f alertmanagerFacts) judgeConfig(out *findings) {
	example := "as in compose/alertmanager.yml"
	for _, r := range f.config.Receivers {
		for _, w := range r.Webhooks {
			is, hidden := ours(w.URL)
			if !is {
				continue
			}
			found := fmt.Sprintf("%s posts to %s", r.Name, w.URL)
			if hidden {
				found = r.Name + " has a webhook whose address Alertmanager hides"
			}
			switch repeat, routed := f.config.Route.repeat(r.Name, model.Duration(4*time.Hour)); {
			case !routed:
				out.add(Fail, "receiver", found, "no route leads to it", "a route with matchers action=~\".+\", "+example)
			case w.SendResolved != nil && !*w.SendResolved:
				out.add(Fail, "receiver", found+", send_resolved: false", "holds end only when their leases do", "send_resolved: true")
			case w.MaxAlerts > 0:
				out.add(Warn, "receiver", fmt.Sprintf("%s, max_alerts: %d", found, w.MaxAlerts), "a truncated notification loses alerts", "max_alerts: 0")
			case time.Duration(repeat) >= config.DefaultLease:
				out.add(Warn, "receiver", fmt.Sprintf("%s, repeat_interval: %s", found, repeat), fmt.Sprintf("an alert's lease (--lease, %v) ends before it is repeated", config.DefaultLease), "repeat_interval: 1m on its route, "+example)
			default:
				out.ok("receiver", found)
			}
			return
		}
	}
	out.add(Fail, "receiver", "no webhook that ends in /api/v1/alerts", "no alert reaches the actuator", "a receiver with webhook_configs: url: http://127.0.0.1:9871/api/v1/alerts, "+example)
}

// repeat finds the repeat_interval of the first route to a receiver; what a route
// does not set it has from the one above.
func (r amRoute) repeat(receiver string, inherited model.Duration) (d model.Duration, routed bool) {
	d = inherited
	if own, err := model.ParseDuration(r.RepeatInterval); err == nil {
		d = own
	}
	for _, sub := range r.Routes {
		if sub.Receiver == "" {
			sub.Receiver = r.Receiver
		}
		if found, ok := sub.repeat(receiver, d); ok {
			return found, true
		}
	}
	return d, r.Receiver == receiver
}
