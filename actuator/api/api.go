// Package api is the actuator's HTTP API: the one router, on which alerts come in, what
// is known and was decided goes out, and the live page and placement are mounted. One
// gate, access.Gate, says who may act.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/webserver"
)

// Actuator is what the API serves.
type Actuator interface {
	webhook.Receiver
	// Healthy says why it must be restarted; nil: it need not.
	Healthy() error
	// Ready says why it cannot act; nil: it can.
	Ready() error
	// Reload reads configuration and nodes again. It returns ErrNothingToReload where there
	// is no file of either; a bad one changes nothing.
	Reload(ctx context.Context) error
	// Admission answers whether a deadline or share could be kept.
	Admission(ctx context.Context, q admission.Question) (admission.Answer, error)
}

// ErrNothingToReload means that there is neither a configuration file nor a nodes.yaml.
var ErrNothingToReload = errors.New("nothing to reload: start with --nodes.file, or laxity-actuator with --config.file, to be able to")

// Decisions is the log of what was decided and why: *decisionlog.Log.
type Decisions interface {
	Last(after uint64) (all []decision.Decision, next <-chan struct{})
	Watch(ctx context.Context, after uint64) <-chan decision.Decision
}

// Options of a router. All but Mount are required.
type Options struct {
	Gate      *access.Gate
	Actuator  Actuator
	State     func() any // of the actuator, as JSON
	Decisions Decisions
	Metrics   prometheus.Gatherer
	// Page is the live page, at /.
	Page http.Handler
	// Mount adds other parts' routes; those that change something pass through the gate.
	Mount []func(chi.Router, *access.Gate)
	// Answered is told the status of each answer to a notification.
	Answered func(code int)
	Logger   *slog.Logger
}

// Refuse answers a request that is not served, in one form. It is the Gate's, too.
func Refuse(answered func(code int)) webserver.Refuse {
	return func(w http.ResponseWriter, r *http.Request, code int, err error) {
		if r.Method == http.MethodPost && r.URL.Path == "/api/v1/alerts" {
			if code == http.StatusTooManyRequests {
				code = http.StatusServiceUnavailable // which Alertmanager repeats
			}
			answered(code)
		}
		http.Error(w, err.Error(), code)
	}
}

// timeout bounds what waits for others: nodes, Prometheus, the actuator's own loop. What
// streams has none.
const timeout = 30 * time.Second

type server struct{ Options }

// Router makes the router.
func Router(o Options) chi.Router {
	s, refuse := server{o}, Refuse(o.Answered)
	r := webserver.Router(o.Logger, refuse)
	r.Use(o.Gate.All)
	r.Group(func(r chi.Router) {
		r.Use(middleware.Timeout(timeout))
		r.Handle("POST /api/v1/alerts", o.Gate.Change(forward.Mark(webhook.Handler(o.Actuator, o.Logger, o.Answered))))
		r.Handle("POST /-/reload", o.Gate.Change(http.HandlerFunc(s.reload)))
		r.Handle("GET /api/v1/admission", o.Gate.Change(http.HandlerFunc(s.admission))) // it may ask another node, with our credentials
		for _, mount := range o.Mount {
			mount(r, o.Gate)
		}
	})
	r.HandleFunc("GET /api/v1/state", s.state)
	r.Handle("GET /api/v1/decisions", o.Gate.Streams(http.HandlerFunc(s.decisions)))
	r.Handle("GET /metrics", webserver.Metrics(o.Metrics, o.Logger, promhttp.HandlerOpts{}))
	r.HandleFunc("GET /-/healthy", s.healthy)
	r.HandleFunc("GET /-/ready", s.ready)
	webserver.Profiler(r, o.Gate.Change, refuse)
	r.Mount("/", o.Page)
	return r
}

func (s server) reload(w http.ResponseWriter, r *http.Request) {
	switch err := s.Actuator.Reload(r.Context()); {
	case errors.Is(err, ErrNothingToReload):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		s.Logger.Error("not reloaded", "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s server) healthy(w http.ResponseWriter, _ *http.Request) {
	if err := s.Actuator.Healthy(); err != nil {
		http.Error(w, "not healthy: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("healthy\n"))
}

func (s server) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.Actuator.Ready(); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

func (s server) state(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.State()) }

// admission answers whether a deadline or a share could be kept by a container that does not run yet.
func (s server) admission(w http.ResponseWriter, r *http.Request) {
	q, err := admission.ParseQuestion(r.URL.Query())
	if err != nil {
		failed(w, http.StatusBadRequest, err)
		return
	}
	switch a, err := s.Actuator.Admission(r.Context(), q); {
	case errors.Is(err, admission.ErrNoSuchPlace):
		failed(w, http.StatusNotFound, err)
	case err != nil:
		failed(w, http.StatusServiceUnavailable, err)
	default:
		writeJSON(w, a)
	}
}

// decisions answers ?container=NAME&after=SEQUENCE&limit=N, oldest first; with ?watch=1
// as newline-delimited JSON that goes on.
func (s server) decisions(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	after, err := number(q.Get("after"))
	limit, err2 := number(q.Get("limit"))
	if err = errors.Join(err, err2); err != nil {
		http.Error(w, "after and limit must be whole numbers: "+err.Error(), http.StatusBadRequest)
		return
	}
	wanted := func(d decision.Decision) bool {
		c := q.Get("container")
		return c == "" || d.About(c)
	}
	if q.Get("watch") == "1" {
		s.watch(w, r, after, wanted)
		return
	}
	all, _ := s.Decisions.Last(after)
	out := []decision.Decision{}
	for _, d := range all {
		if wanted(d) {
			out = append(out, d)
		}
	}
	if limit > 0 && uint64(len(out)) > limit {
		out = out[uint64(len(out))-limit:]
	}
	writeJSON(w, out)
}

func (s server) watch(w http.ResponseWriter, r *http.Request, after uint64, wanted func(decision.Decision) bool) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(webserver.NewStream(w))
	for d := range s.Decisions.Watch(r.Context(), after) {
		if wanted(d) && lines.Encode(d) != nil {
			return
		}
	}
}

func number(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

func failed(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
