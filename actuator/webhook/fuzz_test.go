package webhook_test

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/laxity/laxity/actuator/webhook"
)

// Whatever is posted is either refused as invalid or a message of version 4 whose
// alerts have a status, can be kept, and are short once they are shortened.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"version":"4","alerts":[]}`,
		`{"version":"4","status":"firing","alerts":[{"status":"firing","labels":{"alertname":"GPUContention","action":"arbitrate","gpu":"GPU-1","node":"n"},"annotations":{"action":"pause"},"startsAt":"2026-01-02T03:04:05Z","endsAt":"0001-01-01T00:00:00Z","fingerprint":"abc"}]}`,
		`{"version":"4","truncatedAlerts":3,"alerts":[{"status":"resolved","labels":null}]}`,
		`{"version":"3"}`, `{"version":"4","alerts":[{"status":"maybe"}]}`, `{"version":"4"}{}`, `[]`, `null`, ``, "\xff", `{"version":"4","alerts":[{"status":"firing","labels":{"a":"\u0000\u001b[2J"}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Add([]byte(payload))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := webhook.Parse(body)
		if err != nil {
			if !errors.Is(err, webhook.ErrInvalid) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		for _, a := range m.Alerts {
			if a.Status != webhook.Firing && a.Status != webhook.Resolved {
				t.Errorf("status %q", a.Status)
			}
			s := a.Shortened()
			for _, text := range []string{s.Name(), s.Fingerprint, s.Action(), s.Labels["container"], s.Labels["gpu"]} {
				if len(text) > 256 || utf8.ValidString(a.Name()+a.Fingerprint+a.Action()) && !utf8.ValidString(text) {
					t.Errorf("%d bytes are kept of a text", len(text))
				}
			}
		}
		kept, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("what was accepted cannot be kept: %v", err)
		}
		if again, err := webhook.Parse(kept); err != nil || len(again.Alerts) != len(m.Alerts) {
			t.Errorf("what was kept cannot be read again: %v", err)
		}
	})
}
