package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/decision/decisionlog"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/internal/access"
)

// fake is an actuator; its errors are what it answers.
type fake struct {
	healthy, ready, reload, receive error
	admission                       error
	passedOn                        bool
	until                           time.Time // the last call's
}

func (f *fake) Healthy() error { return f.healthy }
func (f *fake) Ready() error   { return f.ready }
func (f *fake) Reload(ctx context.Context) error {
	f.until, _ = ctx.Deadline()
	return f.reload
}
func (f *fake) Admission(_ context.Context, q admission.Question) (admission.Answer, error) {
	return admission.Answer{Result: admission.Unmet, Reason: q.Image + " is too long"}, f.admission
}
func (f *fake) Receive(ctx context.Context, _ webhook.Message) error {
	f.passedOn = forward.Marked(ctx)
	f.until, _ = ctx.Deadline()
	return f.receive
}

func router(t *testing.T, f *fake) (r chi.Router, log *decisionlog.Log, codes map[int]int) {
	t.Helper()
	log, err := decisionlog.Open(decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	codes = map[int]int{}
	count := func(code int) { codes[code]++ }
	page := chi.NewRouter()
	page.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the page")) })
	page.HandleFunc("POST /actions/pause", func(http.ResponseWriter, *http.Request) {})
	return Router(Options{
		Gate: access.New(access.Options{Refuse: Refuse(count)}), Actuator: f, State: func() any { return map[string]int{"holds": 2} },
		Decisions: log, Metrics: prometheus.NewRegistry(), Page: page, Answered: count, Logger: slog.New(slog.DiscardHandler),
		Mount: []func(chi.Router, *access.Gate){func(r chi.Router, gate *access.Gate) {
			r.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) })
			r.Handle("DELETE /api/v1/placements/{id}", gate.Change(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no") })))
		}},
	}), log, codes
}

func ask(h http.Handler, remote, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:9871"+path, strings.NewReader(body))
	r.RemoteAddr = remote
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const (
	here, there = "127.0.0.1:5", "192.0.2.1:5"
	nothing     = `{"version":"4","alerts":[]}`
)

func TestAnswers(t *testing.T) {
	bad := errors.New("because")
	for name, c := range map[string]struct {
		f                          fake
		remote, method, path, body string
		code                       int
		says                       string
	}{
		"page":                {fake{}, there, "GET", "/", "", 200, "the page"},
		"head":                {fake{}, there, "HEAD", "/", "", 200, ""},
		"mounted":             {fake{}, there, "GET", "/api/v1/nodes", "", 200, "[]"},
		"mounted, stranger":   {fake{}, there, "DELETE", "/api/v1/placements/x", "", 403, "only clients on this machine"},
		"panic":               {fake{}, here, "DELETE", "/api/v1/placements/x", "", 500, ""},
		"healthy":             {fake{ready: bad}, there, "GET", "/-/healthy", "", 200, "healthy"},
		"not healthy":         {fake{healthy: bad}, there, "GET", "/-/healthy", "", 503, "not healthy: because"},
		"ready":               {fake{}, there, "GET", "/-/ready", "", 200, "ready"},
		"not ready":           {fake{ready: bad}, there, "GET", "/-/ready", "", 503, "not ready: because"},
		"reload":              {fake{}, here, "POST", "/-/reload", "", 200, ""},
		"reload nothing":      {fake{reload: ErrNothingToReload}, here, "POST", "/-/reload", "", 404, "--config.file"},
		"reload badly":        {fake{reload: bad}, here, "POST", "/-/reload", "", 500, "because"},
		"reload, stranger":    {fake{}, there, "POST", "/-/reload", "", 403, "only clients on this machine"},
		"state":               {fake{}, there, "GET", "/api/v1/state", "", 200, `{"holds":2}`},
		"admission":           {fake{}, here, "GET", "/api/v1/admission?deadline=9s&image=a", "", 200, `{"result":"unmet","reason":"a is too long"}`},
		"admission, stranger": {fake{}, there, "GET", "/api/v1/admission?deadline=9s", "", 403, "only clients on this machine"},
		"admission, badly":    {fake{}, here, "GET", "/api/v1/admission?deadline=soon", "", 400, "write a duration"},
		"admission, nowhere":  {fake{admission: admission.ErrNoSuchPlace}, here, "GET", "/api/v1/admission?node=x", "", 404, "nothing is known"},
		"admission, not now":  {fake{admission: bad}, here, "GET", "/api/v1/admission", "", 503, `{"error":"because"}`},
		"metrics":             {fake{}, there, "GET", "/metrics", "", 200, ""},
		"decisions":           {fake{}, there, "GET", "/api/v1/decisions?after=x", "", 400, "whole numbers"},
		"alerts":              {fake{}, here, "POST", "/api/v1/alerts", nothing, 200, "accepted"},
		"alerts, full":        {fake{receive: webhook.ErrFull}, here, "POST", "/api/v1/alerts", nothing, 503, "inbox is full"},
		"alerts, stranger":    {fake{}, there, "POST", "/api/v1/alerts", nothing, 403, "only clients on this machine"},
		"profiles":            {fake{}, here, "GET", "/debug/pprof/cmdline", "", 200, ""},
		"profiles, there":     {fake{}, there, "GET", "/debug/pprof/cmdline", "", 403, "only clients on this machine"},
		"nowhere":             {fake{}, there, "GET", "/nowhere", "", 404, "/nowhere is not here"},
		"nowhere in api":      {fake{}, there, "GET", "/api/v1/nowhere", "", 404, "/api/v1/nowhere is not here"},
		"wrong method":        {fake{}, there, "GET", "/api/v1/alerts", "", 405, "does not take GET"},
		"wrong for page":      {fake{}, there, "GET", "/actions/pause", "", 405, "does not take GET"},
		"wrong for mounted":   {fake{}, there, "POST", "/api/v1/nodes", "", 405, "does not take POST"},
	} {
		r, _, codes := router(t, &c.f)
		w := ask(r, c.remote, c.method, c.path, c.body)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if want := map[bool]int{true: 1}[c.method+c.path == "POST/api/v1/alerts"]; codes[c.code] != want {
			t.Errorf("%s: counted %v", name, codes)
		}
		if c.code == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
			t.Errorf("%s: no header Allow", name)
		}
	}
}

// Whatever asks others is given up some time.
func TestWaitsEnd(t *testing.T) {
	f := &fake{}
	r, _, _ := router(t, f)
	before := time.Now()
	for _, path := range []string{"/api/v1/alerts", "/-/reload"} {
		f.until = time.Time{}
		if ask(r, here, "POST", path, nothing); f.until.Before(before) || f.until.After(time.Now().Add(timeout)) {
			t.Errorf("%s waits until %v", path, f.until)
		}
	}
}

func TestWhatWasPassedOnIsMarked(t *testing.T) {
	f := &fake{}
	r, _, _ := router(t, f)
	q := httptest.NewRequest(http.MethodPost, "http://localhost:9871/api/v1/alerts", strings.NewReader(nothing))
	q.RemoteAddr = here
	q.Header.Set(forward.Header, "1")
	if r.ServeHTTP(httptest.NewRecorder(), q); !f.passedOn {
		t.Error("it would be passed on again")
	}
}

func TestDecisions(t *testing.T) {
	r, log, _ := router(t, &fake{})
	for _, c := range []string{"a", "b", "a"} {
		log.Add(decision.Decision{Container: c})
	}
	for query, want := range map[string]string{"": "123", "?container=a": "13", "?after=1": "23", "?limit=1": "3", "?container=a&limit=1&after=1": "3", "?container=c": ""} {
		var got []decision.Decision
		if err := json.Unmarshal(ask(r, there, "GET", "/api/v1/decisions"+query, "").Body.Bytes(), &got); err != nil || got == nil {
			t.Fatal(query, err)
		}
		sequences := ""
		for _, d := range got {
			sequences += string(rune('0' + d.Sequence))
		}
		if sequences != want {
			t.Errorf("%q: %s, want %s", query, sequences, want)
		}
	}
	server := httptest.NewServer(r)
	defer server.Close()
	resp, err := http.Get(server.URL + "/api/v1/decisions?watch=1&container=a&after=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{`"sequence":3`, `"sequence":5`} {
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%s: %s %v", want, lines.Text(), lines.Err())
		}
		log.Add(decision.Decision{Container: "b"})
		log.Add(decision.Decision{Container: "a"})
	}
}

// Alertmanager repeats 5xx alone: an alert that came too often must not be given up.
func TestAnAlertThatComesTooOftenIsRepeated(t *testing.T) {
	counted := 0
	refuse := Refuse(func(code int) { counted = code })
	for path, want := range map[string]int{"/api/v1/alerts": http.StatusServiceUnavailable, "/api/v1/placements": http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		refuse(w, httptest.NewRequest(http.MethodPost, path, nil), http.StatusTooManyRequests, errors.New("too many"))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	if counted != http.StatusServiceUnavailable {
		t.Errorf("counted as %d", counted)
	}
}
