package check

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
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
		Name     string      `yaml:"name"`
		Webhooks []amWebhook `yaml:"webhook_configs"`
	} `yaml:"receivers"`
}

type amWebhook struct {
	URL          string `yaml:"url"`
	SendResolved *bool  `yaml:"send_resolved"`
	MaxAlerts    int    `yaml:"max_alerts"`
}

type amRoute struct {
	Receiver       string            `yaml:"receiver"`
	Matchers       []string          `yaml:"matchers"`
	Match          map[string]string `yaml:"match"`
	MatchRE        map[string]string `yaml:"match_re"`
	RepeatInterval string            `yaml:"repeat_interval"`
	GroupWait      string            `yaml:"group_wait"`
	GroupInterval  string            `yaml:"group_interval"`
	Continue       bool              `yaml:"continue"`
	Routes         []amRoute         `yaml:"routes"`
}

// amWay is a route to a receiver that alerts of one action take, with what it inherits from the routes above it.
type amWay struct {
	repeat, wait, interval model.Duration
	// selects: alerts without an action do not take it. sure: no other label decides who does.
	selects, sure bool
}

// amDefaults are Alertmanager's own.
var amDefaults = amWay{repeat: model.Duration(4 * time.Hour), wait: model.Duration(30 * time.Second), interval: model.Duration(5 * time.Minute), sure: true}

// actions are those that the actuator understands.
var actions = []lease.Wish{lease.Arbitrate, lease.Relieve, lease.Pause, lease.Drain, lease.Expedite}

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

// hiddenURL is what Alertmanager says in place of a webhook's address; from 0.34 on it hides all.
const hiddenURL = "<secret>"

// isActuator reports whether a webhook may be an actuator's. One with a hidden address may be if a route to it
// selects alerts with an action.
func (w amWebhook) isActuator(ways [][]amWay) bool {
	if w.URL == hiddenURL {
		return slices.ContainsFunc(slices.Concat(ways...), func(w amWay) bool { return w.selects })
	}
	u, err := url.Parse(w.URL)
	return err == nil && strings.HasSuffix(u.Path, "/api/v1/alerts")
}

// judgeConfig looks for a webhook that serves the actuator. It tells of the best one, since others
// may be of another actuator, or of people.
func (f alertmanagerFacts) judgeConfig(out *findings) {
	found, hidden := findings{area: out.area}, ""
	for _, r := range f.config.Receivers {
		var ways [][]amWay
		for _, action := range actions {
			of, _ := f.config.Route.ways(r.Name, string(action), amDefaults)
			ways = append(ways, of)
		}
		for _, w := range r.Webhooks {
			switch {
			case w.isActuator(ways):
				w.judge(&found, r.Name, ways)
			case w.URL == hiddenURL:
				hidden = r.Name
			}
		}
	}
	switch {
	case len(found.list) > 0:
		out.list = append(out.list, slices.MinFunc(found.list, bySeverity))
	case hidden != "":
		out.add(Warn, "receiver", hidden+" has a webhook whose address Alertmanager hides, and no route to it selects alerts by their label action", "whether alerts reach the actuator is not known", "a route with matchers action=~\".+\", "+example+"; --send-test-alert tries it")
	default:
		out.add(Fail, "receiver", "no webhook that ends in /api/v1/alerts", "no alert reaches the actuator", "a receiver with webhook_configs: url: http://127.0.0.1:9871/api/v1/alerts, "+example)
	}
}

const example = "as in compose/alertmanager.yml"

var severity = map[Level]int{OK: 0, Warn: 1, Fail: 2}

func bySeverity(a, b Finding) int { return cmp.Compare(severity[a.Level], severity[b.Level]) }

// judge adds the worst that happens to alerts on their ways to the webhook, which are by action. An alert that surely
// takes several ways fares as on the best of them. Ways that other labels decide count where they select alerts with
// an action, or where there are no others: else they may be for alerts that are none of ours.
func (w amWebhook) judge(out *findings, receiver string, ways [][]amWay) {
	found := fmt.Sprintf("%s posts to %s", receiver, w.URL)
	if w.URL == hiddenURL {
		found = receiver + " has a webhook whose address Alertmanager hides"
	}
	count, others := findings{area: out.area}, findings{area: out.area}
	for _, of := range ways {
		sure := findings{area: out.area}
		for _, way := range of {
			switch {
			case way.sure:
				w.judgeWay(&sure, found, way)
			case way.selects:
				w.judgeWay(&count, found, way)
			default:
				w.judgeWay(&others, found, way)
			}
		}
		if len(sure.list) > 0 {
			count.list = append(count.list, slices.MinFunc(sure.list, bySeverity))
		}
	}
	switch {
	case len(count.list) > 0:
		out.list = append(out.list, slices.MaxFunc(count.list, bySeverity))
	case len(others.list) > 0:
		out.list = append(out.list, slices.MaxFunc(others.list, bySeverity))
	default:
		out.add(Fail, "receiver", found, "no route leads alerts with an action to it", "a route with matchers action=~\".+\", "+example)
	}
}

// Longer waits of Alertmanager delay what the actuator is asked to do.
const (
	maxGroupWait     = model.Duration(time.Second)
	maxGroupInterval = model.Duration(5 * time.Second)
)

func (w amWebhook) judgeWay(out *findings, found string, way amWay) {
	switch {
	case w.SendResolved != nil && !*w.SendResolved:
		out.add(Fail, "receiver", found+", send_resolved: false", "holds end only when their leases do", "send_resolved: true")
	case w.MaxAlerts > 0:
		out.add(Warn, "receiver", fmt.Sprintf("%s, max_alerts: %d", found, w.MaxAlerts), "a truncated notification loses alerts", "max_alerts: 0")
	case time.Duration(way.repeat) >= config.DefaultLease:
		out.add(Warn, "receiver", fmt.Sprintf("%s, repeat_interval: %s", found, way.repeat), fmt.Sprintf("an alert's lease (--lease, %v) ends before it is repeated", config.DefaultLease), "repeat_interval: 1m on its route, "+example)
	case way.wait > maxGroupWait || way.interval > maxGroupInterval:
		out.add(Warn, "receiver", fmt.Sprintf("%s, group_wait: %s, group_interval: %s", found, way.wait, way.interval), "the actuator learns of each alert, and of its end, that late", "group_by: ['...'], group_wait: 0s and group_interval: 10ms on its route, "+example)
	default:
		out.ok("receiver", found)
	}
}

// ways are the routes to a receiver that alerts with this action take at this route and below, as Alertmanager does: a
// route that matches takes what none below it does, and ends the search unless it continues. What a route does not set
// it has from the one above. sure: the route takes them whatever their other labels are.
func (r amRoute) ways(receiver, action string, above amWay) (all []amWay, sure bool) {
	takes, sure, selects := r.matches(action)
	if !takes {
		return nil, false
	}
	way := amWay{own(r.RepeatInterval, above.repeat), own(r.GroupWait, above.wait), own(r.GroupInterval, above.interval), above.selects || selects, above.sure && sure}
	taken := false
	for _, sub := range r.Routes {
		sub.Receiver = cmp.Or(sub.Receiver, r.Receiver)
		below, surely := sub.ways(receiver, action, way)
		all = append(all, below...)
		if taken = taken || surely; surely && !sub.Continue {
			break
		}
	}
	if !taken && r.Receiver == receiver {
		all = append(all, way)
	}
	return all, sure
}

func own(text string, inherited model.Duration) model.Duration {
	if d, err := model.ParseDuration(text); err == nil {
		return d
	}
	return inherited
}

// matcher is one of those in a text such as action=~".+" or {severity="info", "action"!=""}.
var matcher = regexp.MustCompile(`"?([^\s{},"=!~]+)"?\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|[^,}]*)`)

// matches reports whether the route takes alerts with this action, whether that is sure whatever their other labels
// are, and whether it refuses alerts without an action.
func (r amRoute) matches(action string) (takes, sure, selects bool) {
	takes, sure = true, true
	match := func(label, operator, value string) {
		if label != "action" {
			sure = false
			return
		}
		takes = takes && accepts(operator, value, action)
		selects = selects || !accepts(operator, value, "")
	}
	for label, value := range r.Match {
		match(label, "=", value)
	}
	for label, value := range r.MatchRE {
		match(label, "=~", value)
	}
	for _, text := range r.Matchers {
		for _, m := range matcher.FindAllStringSubmatch(text, -1) {
			match(m[1], m[2], strings.Trim(strings.TrimSpace(m[3]), `"`))
		}
	}
	return takes, sure, selects
}

// accepts reports whether a matcher accepts a label's value, which is empty where there is no label.
func accepts(operator, want, value string) bool {
	equal := want == value
	if strings.HasSuffix(operator, "~") {
		re, err := regexp.Compile("^(?:" + want + ")$")
		equal = err != nil || re.MatchString(value)
	}
	return equal != strings.HasPrefix(operator, "!")
}
