package check

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/actuator/decision"
)

func TestAlertmanager(t *testing.T) {
	shipped, err := os.ReadFile("../../../../compose/alertmanager.yml")
	if err != nil {
		t.Fatal(err)
	}
	replaced := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(string(shipped)) }
	hidden := replaced("http://127.0.0.1:9871/api/v1/alerts", hiddenURL)
	// people have a hidden webhook too, before the actuator's.
	people := func(config string) string {
		return strings.Replace(config, "receivers:\n", "receivers:\n  - name: people\n    webhook_configs: [{url: <secret>, send_resolved: false}]\n", 1)
	}
	// routes are those of the receivers actuator, whose own waits are Alertmanager's, and people.
	const good = "repeat_interval: 1m, group_wait: 0s, group_interval: 10ms"
	routes := func(list ...string) string {
		return "route: {receiver: people, routes: [" + strings.ReplaceAll(strings.Join(list, ", "), "GOOD", good) + "]}\n" +
			"receivers: [{name: people}, {name: actuator, webhook_configs: [{url: 'http://127.0.0.1:9871/api/v1/alerts'}]}]"
	}
	const all = `matchers: ['action=~".+"']`
	tests := []struct {
		name, config string
		level        Level
		word         string
	}{
		{"the shipped one", string(shipped), OK, "http://127.0.0.1:9871/api/v1/alerts"},
		{"hidden address", hidden, OK, "hides"},
		{"repeated too seldom", replaced("repeat_interval: 1m", "repeat_interval: 10m"), Warn, "lease"},
		{"repeats inherited", replaced("repeat_interval: 1m", "group_wait: 0s"), Warn, "4h"},
		{"resolves kept back", replaced("send_resolved: true", "send_resolved: false"), Fail, "send_resolved: true"},
		{"truncated", replaced("max_alerts: 0", "max_alerts: 5"), Warn, "max_alerts"},
		{"no route", replaced("- receiver: actuator", "- receiver: people"), Fail, "no route"},
		{"another hidden webhook first", people(hidden), OK, "actuator has a webhook"},
		{"hidden, chosen by match", strings.Replace(people(hidden), `matchers: ['action=~".+"']`, "match_re: {action: .+}", 1), OK, "actuator has"},
		{"hidden, the better one", people(strings.Replace(hidden, "routes:\n", "routes:\n    - {receiver: people, matchers: ['action!=\"\"'], continue: true}\n", 1)), OK, "actuator has"},
		{"hidden, for all but ours", people(strings.Replace(hidden, `action=~".+"`, `action=""`, 1)), Warn, "not known"},
		{"hidden, without a route", people(strings.Replace(hidden, "action=~", "severity=~", 1)), Warn, "--send-test-alert"},
		{"waits by default", replaced("group_wait: 0s", "", "group_interval: 10ms", ""), Warn, "group_wait: 30s, group_interval: 5m"},
		{"ends come late", replaced("group_interval: 10ms", "group_interval: 1m"), Warn, "group_interval: 10ms on its route"},
		{"its own waits", replaced("group_wait: 0s", "group_wait: 30s", "repeat_interval: 1m", "repeat_interval: 1m\n      group_wait: 1s"), OK, "posts"},
		{"another webhook", replaced("/api/v1/alerts", "/slack"), Fail, "no webhook"},
		{"some late", routes(`{receiver: actuator, matchers: ['action="pause"'], GOOD}`, `{receiver: actuator, `+all+`}`), Warn, "4h"},
		{"some late, by the root", strings.Replace(routes(`{receiver: actuator, matchers: ['action="pause"'], GOOD}`), "{receiver: people", "{receiver: actuator", 1), Warn, "4h"},
		{"some late, by another label", routes(`{receiver: actuator, matchers: ['{node="gpu-1", action=~".+"}']}`, `{receiver: actuator, `+all+`, GOOD}`), Warn, "4h"},
		{"twice, once late", routes(`{receiver: actuator, `+all+`, GOOD, continue: true}`, `{receiver: actuator, `+all+`}`), OK, "posts"},
		{"late after it", routes(`{receiver: actuator, `+all+`, GOOD}`, `{receiver: actuator, match: {action: pause}}`), OK, "posts"},
		{"late above it", routes(`{receiver: actuator, ` + all + `, routes: [{matchers: ['action!=""'], GOOD}]}`), OK, "posts"},
		{"late for an action that is not ours", routes(`{receiver: actuator, matchers: ['action="page"']}`, `{receiver: actuator, `+all+`, GOOD}`), OK, "posts"},
		{"late for alerts of others", routes(`{receiver: actuator, matchers: ['team="db, action=x"']}`, `{receiver: actuator, `+all+`, GOOD}`), OK, "posts"},
		{"only by other labels", routes(`{receiver: actuator, match_re: {alertname: GPU.*}}`), Warn, "4h"},
		{"only for an action that is not ours", routes(`{receiver: actuator, matchers: ['action="page"'], GOOD}`), Fail, "no route"},
		{"nothing", "route: {receiver: x}\nreceivers: [{name: x}]", Fail, "no webhook"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := alertmanagerFacts{at: at}
			if err := yaml.Unmarshal([]byte(tt.config), &f.config); err != nil {
				t.Fatal(err)
			}
			expect(t, f.judge(), "receiver", tt.level, tt.word)
		})
	}
	expect(t, alertmanagerFacts{at: at, err: errGone}.judge(), "running", Skip, "compose")
	expect(t, alertmanagerFacts{at: at}.judge(), "test alert", Skip, "--send-test-alert")
	expect(t, alertmanagerFacts{at: at, sent: true}.judge(), "test alert", Fail, "do not reach")
	expect(t, alertmanagerFacts{at: at, sent: true, sendErr: errGone}.judge(), "test alert", Fail, "refused")
	expect(t, alertmanagerFacts{at: at, sent: true, arrived: 75 * time.Millisecond}.judge(), "test alert", OK, "75 ms")
}

// The alert that is sent is the one that is waited for, and does nothing.
func TestSendTestAlert(t *testing.T) {
	var mu sync.Mutex
	noted := []decision.Decision{}
	am := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alerts []struct{ Labels map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil || r.URL.Path != "/api/v2/alerts" || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range alerts {
			if a.Labels["action"] != testAction || a.Labels["node"] != "" {
				t.Errorf("the alert asks for something: %v", a.Labels)
			}
			noted = append(noted, decision.Decision{Kind: decision.Alert, Alert: a.Labels["alertname"]})
		}
	}))
	defer am.Close()
	act := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(noted)
	}))
	defer act.Close()
	if took, err := sendTestAlert(t.Context(), Address{URL: am.URL}, Address{URL: act.URL}); err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
	if _, err := sendTestAlert(t.Context(), Address{URL: "http://127.0.0.1:1"}, Address{URL: act.URL}); err == nil {
		t.Error("no error where no Alertmanager is")
	}
	if _, err := sendTestAlert(t.Context(), Address{URL: am.URL}, Address{URL: "http://127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("no actuator: %v", err)
	}
}

// An Alertmanager that asks for a password is there, and says so: the fix names the flag that has one.
func TestAlertmanagerThatAsks(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	f := gatherAlertmanager(t.Context(), Options{Alertmanager: Address{URL: server.URL}})
	if !errors.Is(f.err, errAsks) {
		t.Fatal(f.err)
	}
	expect(t, f.judge(), "running", Skip, "--prometheus.config.file")
	f.at.Given = true
	expect(t, f.judge(), "running", Fail, "wants a password")
}
