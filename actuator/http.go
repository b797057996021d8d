package actuator

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/webhook"
)

// Handler serves the API, the metrics and the live page. It needs Run only to
// have something to show; alerts are accepted before.
func (a *Actuator) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.metrics)
	if a.forward != nil {
		registry.MustRegister(a.forward)
	}
	alerts := webhook.Handler(a, a.log, func(code int) {
		a.metrics.Webhooks.WithLabelValues(strconv.Itoa(code)).Inc()
	})
	r := chi.NewRouter()
	r.Use(a.access.All, middleware.GetHead)
	r.Handle("POST /api/v1/alerts", a.access.Change(forward.Mark(alerts)))
	r.Handle("POST /-/reload", a.access.Change(http.HandlerFunc(a.serveReload)))
	r.HandleFunc("GET /api/v1/state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.State()) })
	r.Handle("GET /api/v1/decisions", a.access.Streams(http.HandlerFunc(a.serveDecisions)))
	r.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	r.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("healthy\n")) })
	r.HandleFunc("GET /-/ready", a.serveReady)
	a.page.Register(r)
	for _, mount := range a.o.Mount {
		mount(r, a.access.Change)
	}
	return r
}

func (a *Actuator) serveReload(w http.ResponseWriter, r *http.Request) {
	switch err := a.Reload(r.Context()); {
	case errors.Is(err, ErrNothingToReload):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		a.log.Error("not reloaded", "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (a *Actuator) serveReady(w http.ResponseWriter, _ *http.Request) {
	s := a.State()
	if s.Ready {
		_, _ = w.Write([]byte("ready\n"))
		return
	}
	why := cmp.Or(s.Trouble, s.Standby)
	if why == "" {
		why = "no guardian watches, or it has only just started"
	}
	http.Error(w, "not ready: "+why, http.StatusServiceUnavailable)
}

// serveDecisions answers ?container=NAME&after=SEQUENCE&limit=N, oldest first;
// with ?watch=1 as newline-delimited JSON that goes on.
func (a *Actuator) serveDecisions(w http.ResponseWriter, r *http.Request) {
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
		a.streamDecisions(w, r, after, wanted)
		return
	}
	all, _ := a.decisions.Last(after)
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

// streamWriteLimit ends the stream of a reader that does not read.
const streamWriteLimit = 10 * time.Second

func (a *Actuator) streamDecisions(w http.ResponseWriter, r *http.Request, after uint64, wanted func(decision.Decision) bool) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	_ = flush.SetReadDeadline(time.Time{}) // the server's is for the request; not every server has one
	_ = flush.Flush()
	enc := json.NewEncoder(w)
	for d := range a.decisions.Watch(r.Context(), after) {
		if !wanted(d) {
			continue
		}
		_ = flush.SetWriteDeadline(time.Now().Add(streamWriteLimit))
		if enc.Encode(d) != nil || flush.Flush() != nil {
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

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
