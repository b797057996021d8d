package check

import (
	"encoding/json"
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
	tests := []struct {
		name, config string
		level        Level
		word         string
	}{
		{"the shipped one", string(shipped), OK, "http://127.0.0.1:9871/api/v1/alerts"},
		{"hidden address", replaced("http://127.0.0.1:9871/api/v1/alerts", "<secret>"), OK, "hides"},
		{"repeated too seldom", replaced("repeat_interval: 1m", "repeat_interval: 10m"), Warn, "lease"},
		{"repeats inherited", replaced("repeat_interval: 1m", "group_wait: 0s"), Warn, "4h"},
		{"resolves kept back", replaced("send_resolved: true", "send_resolved: false"), Fail, "send_resolved: true"},
		{"truncated", replaced("max_alerts: 0", "max_alerts: 5"), Warn, "max_alerts"},
		{"no route", replaced("- receiver: actuator", "- receiver: people"), Fail, "no route"},
		{"another webhook", replaced("/api/v1/alerts", "/slack"), Fail, "no webhook"},
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
