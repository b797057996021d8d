package webhook_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/laxity/laxity/actuator/webhook"
)

const payload = `{
  "version": "4", "groupKey": "{}:{alertname=\"GPUContention\"}", "truncatedAlerts": 0,
  "status": "firing", "receiver": "laxity", "groupLabels": {"alertname": "GPUContention"},
  "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://am", "some_newer_field": 1,
  "alerts": [{
    "status": "firing", "labels": {"alertname": "GPUContention", "action": "arbitrate", "gpu": "GPU-1", "node": "n"},
    "annotations": {"summary": "two"}, "startsAt": "2026-01-02T03:04:05.678Z", "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prom", "fingerprint": "abc"
  }]
}`

type receiver struct {
	err error
	got []webhook.Message
}

func (r *receiver) Receive(_ context.Context, m webhook.Message) error {
	r.got = append(r.got, m)
	return r.err
}

func TestHandler(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		err  error
		code int
		hint string
	}{
		"good":            {payload, nil, 200, "accepted"},
		"no alerts":       {`{"version":"4"}`, nil, 200, "accepted"},
		"not JSON":        {"hello", nil, 400, "webhook_config"},
		"empty":           {"", nil, 400, "webhook_config"},
		"wrong type":      {`{"version":4}`, nil, 400, "webhook_config"},
		"array":           {`[]`, nil, 400, "webhook_config"},
		"two documents":   {payload + payload, nil, 400, "one notification at a time"},
		"version 3":       {`{"version":"3"}`, nil, 400, "Alertmanager 0.16 or later"},
		"no version":      {`{"alerts":[]}`, nil, 400, "Alertmanager 0.16 or later"},
		"strange status":  {`{"version":"4","alerts":[{"status":"maybe"}]}`, nil, 400, "firing"},
		"too large":       {`{"version":"` + strings.Repeat("x", webhook.MaxBytes) + `"}`, nil, 413, "fewer alerts"},
		"full":            {payload, webhook.ErrFull, 503, "repeat it"},
		"disk":            {payload, errors.New("disk failed"), 503, "disk failed"},
		"invalid on Recv": {payload, webhook.ErrInvalid, 400, "not a valid"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &receiver{err: c.err}
			code := 0
			h := webhook.Handler(r, slog.New(slog.DiscardHandler), func(n int) { code = n })
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body)))
			if rec.Code != c.code || code != c.code || !strings.Contains(rec.Body.String(), c.hint) {
				t.Errorf("%d (%d): %s", rec.Code, code, rec.Body)
			}
			if (len(r.got) > 0) != (c.code == 200 || c.err != nil) {
				t.Errorf("received %d", len(r.got))
			}
		})
	}
}

func TestParse(t *testing.T) {
	m, err := webhook.Parse([]byte(payload))
	if err != nil || len(m.Alerts) != 1 {
		t.Fatal(m, err)
	}
	a := m.Alerts[0]
	if a.Name() != "GPUContention" || a.Action() != "arbitrate" || a.Fingerprint != "abc" || a.StartsAt.UnixMilli() != 1767323045678 {
		t.Errorf("%+v", a)
	}
	a.Labels = nil
	a.Annotations = map[string]string{"action": "pause"}
	if a.Action() != "pause" {
		t.Error("the annotation does not count")
	}
}

func TestLongTextsAreShortened(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	a := webhook.Alert{Fingerprint: long, Labels: map[string]string{"alertname": long, "gpu": "g"}, Annotations: map[string]string{"action": long, "other": long}}.Shortened()
	for _, text := range []string{a.Fingerprint, a.Name(), a.Annotations["action"]} {
		if len(text) > 256 || !utf8.ValidString(text) {
			t.Errorf("%d bytes are kept", len(text))
		}
	}
	if a.Labels["gpu"] != "g" || webhook.Short(long) == webhook.Short(long+"x") {
		t.Error("short ones change, or long ones cannot be told apart")
	}
}
