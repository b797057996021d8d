// Package webhook takes alerts in: the payload that Alertmanager posts (version
// 4) and the HTTP handler that answers it.
//
// The struct is ours, because Alertmanager's own package brings 300 others.
// Alertmanager retries 5xx and transport errors only; every other code ends the
// notification. So: 2xx when the message is durably accepted, 503 when it cannot
// be now, 4xx when no repeat could help.
package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Version is the only payload version that is understood.
const Version = "4"

// MaxBytes is the largest payload that is accepted, bytes.
const MaxBytes = 4 << 20

// Status of an alert or a group.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Message is one notification of Alertmanager.
type Message struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   uint64            `json:"truncatedAlerts"`
	Status            string            `json:"status"`
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Alerts            []Alert           `json:"alerts"`
}

// Alert is one alert of a Message.
type Alert struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`
}

// Name is the alert's name.
func (a Alert) Name() string { return a.Labels["alertname"] }

// Action is what the alert asks for: its label `action`, or an annotation of
// that name; empty for an alert that only notifies people.
func (a Alert) Action() string {
	if v := a.Labels["action"]; v != "" {
		return v
	}
	return a.Annotations["action"]
}

// maxText bounds a text of an alert that is kept, bytes.
const maxText = 256

// Short returns the text; of a text longer than maxText its beginning and a hash of the whole. A
// sender's text is kept as long as its lease, and shown to people.
func Short(text string) string {
	if len(text) <= maxText {
		return text
	}
	h := sha256.Sum256([]byte(text))
	return strings.ToValidUTF8(text[:maxText/2], "") + "…" + hex.EncodeToString(h[:16])
}

// Shortened returns the alert with its texts shortened by Short.
func (a Alert) Shortened() Alert {
	a.Fingerprint = Short(a.Fingerprint)
	short := make(map[string]string, len(a.Labels))
	for name, v := range a.Labels {
		short[name] = Short(v)
	}
	a.Labels = short
	if v, ok := a.Annotations["action"]; ok { // the only one that is read
		a.Annotations = map[string]string{"action": Short(v)}
	}
	return a
}

// ErrFull means that the message cannot be accepted now; the sender should
// repeat it.
var ErrFull = errors.New("inbox is full")

// ErrInvalid means that repeating the message cannot help.
var ErrInvalid = errors.New("not a valid notification")

// Parse reads a payload strictly. Unknown fields are allowed, because newer
// Alertmanagers add some within version 4.
func Parse(body []byte) (Message, error) {
	var m Message
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&m); err != nil {
		return Message{}, fmt.Errorf("%w: the body is not JSON as Alertmanager posts it (%v); "+
			"point a webhook_config of Alertmanager at this address, or post version %q by hand", ErrInvalid, err, Version)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Message{}, fmt.Errorf("%w: there is more after the JSON object; post one notification at a time", ErrInvalid)
	}
	return m, m.Validate()
}

// Validate checks version and status.
func (m Message) Validate() error {
	if m.Version != Version {
		return fmt.Errorf("%w: version is %q, only %q is understood; use Alertmanager 0.16 or later", ErrInvalid, m.Version, Version)
	}
	for i, a := range m.Alerts {
		if a.Status != Firing && a.Status != Resolved {
			return fmt.Errorf("%w: alerts[%d].status is %q; write %q or %q", ErrInvalid, i, a.Status, Firing, Resolved)
		}
	}
	return nil
}

// Receiver accepts a message durably before it returns nil. It returns ErrFull,
// or another error that a repeat may cure.
type Receiver interface {
	Receive(ctx context.Context, m Message) error
}

// Handler answers POST with 200 after the message is durably accepted, 400 for
// what is not version 4, 413 for what is too large, 503 when it cannot be
// accepted now. observe receives the code of each answer; it may be nil.
func Handler(r Receiver, logger *slog.Logger, observe func(code int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		code, err := accept(w, req, r)
		if observe != nil {
			observe(code)
		}
		if err != nil {
			logger.Warn("notification not accepted", "code", code, "err", err, "remote", req.RemoteAddr)
			http.Error(w, err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"status\":\"accepted\"}\n")
	})
}

func accept(w http.ResponseWriter, req *http.Request, r Receiver) (int, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge,
			fmt.Errorf("the notification is larger than %d bytes; group by more labels, so that fewer alerts share one", MaxBytes)
	case err != nil:
		return http.StatusBadRequest, fmt.Errorf("the notification ended early: %w", err)
	}
	m, err := Parse(body)
	if err != nil {
		return http.StatusBadRequest, err
	}
	switch err := r.Receive(req.Context(), m); {
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest, err
	case err != nil:
		return http.StatusServiceUnavailable, fmt.Errorf("the notification cannot be kept now, repeat it: %w", err)
	}
	return http.StatusOK, nil
}
