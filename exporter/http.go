package exporter

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/webserver"
)

const (
	// heartbeat is the longest silence on a watched stream. A reader that gets nothing for
	// longer knows that the connection is dead.
	heartbeat = time.Second
	// maxScrapes bounds how many scrapes run at once, and thus their memory. Others get 503.
	maxScrapes = 16
)

// Handler serves /metrics, the API, health, profiles and the landing page.
func (e *Exporter) Handler() http.Handler {
	o := e.opt.Access
	o.Logger, o.Refuse = e.log, refuseRequest
	gate := access.New(o)
	r := webserver.Router(e.log, refuseRequest)
	r.Use(gate.All)
	r.Handle("GET /metrics", e.serveMetrics())
	r.Handle("GET /api/v1/tasks", gate.Streams(http.HandlerFunc(e.serveTasks)))
	r.Handle("PATCH /api/v1/containers/{id}", gate.Change(http.HandlerFunc(e.serveChange)))
	r.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("Laxity exporter is healthy.\n"))
	})
	r.HandleFunc("GET /-/ready", e.serveReady)
	r.Handle("GET /", landingPage())
	webserver.Profiler(r, gate.Change, refuseRequest)
	return r
}

// serveMetrics answers in the format that the reader asks for. Only protobuf has native
// histograms. It logs and counts what it cannot gather, and sends the rest.
func (e *Exporter) serveMetrics() http.Handler {
	return webserver.Metrics(e.registry, e.log, promhttp.HandlerOpts{Registry: e.registry, MaxRequestsInFlight: maxScrapes})
}

func landingPage() http.Handler {
	page, err := web.NewLandingPage(web.LandingConfig{
		Name:        "Laxity exporter",
		Description: "GPU tasks of containers: when each began and ended, and how much time it had to spare.",
		Version:     version.Version,
		Profiling:   "false",
		Links: []web.LandingLinks{
			{Address: "metrics", Text: "Metrics", Description: "for Prometheus"},
			{Address: "api/v1/tasks", Text: "Tasks", Description: "the present snapshot as JSON; ?watch=1 streams it"},
			{Address: "-/healthy", Text: "Healthy"},
			{Address: "-/ready", Text: "Ready"},
			{Address: "debug/pprof/", Text: "Profiles", Description: "of this program, for clients on this machine that may act"},
		},
	})
	if err != nil { // the template is the toolkit's own
		return http.NotFoundHandler()
	}
	return page
}

func (e *Exporter) serveReady(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-e.Ready():
		_, _ = w.Write([]byte("Laxity exporter is ready.\n"))
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("Laxity exporter has not read the GPUs and the containers yet.\n"))
	}
}

func (e *Exporter) serveTasks(w http.ResponseWriter, r *http.Request) {
	switch v := r.URL.Query().Get("watch"); v {
	case "", "0", "false":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(e.Snapshot().At(time.Now()))
	case "1", "true":
		e.streamTasks(w, r)
	default:
		refuse(w, http.StatusBadRequest, "watch="+v+" is not understood", "write watch=1, or leave it out")
	}
}

// streamTasks writes one snapshot a line: at once, on every change, and at least
// every heartbeat.
func (e *Exporter) streamTasks(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no") // proxies would hold lines back
	lines := json.NewEncoder(webserver.NewStream(w))
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	changes := e.Watch(r.Context())
	for {
		var s *task.Snapshot
		select {
		case next, ok := <-changes:
			if !ok {
				return
			}
			s = next
		case <-beat.C:
			s = e.Snapshot()
		}
		if lines.Encode(s.At(time.Now())) != nil {
			return
		}
		beat.Reset(heartbeat)
	}
}

// refuse answers with an error: what is wrong, and what to do.
func refuse(w http.ResponseWriter, status int, problem, hint string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Error string `json:"error"`
		Hint  string `json:"hint"`
	}{problem, hint})
}

// refuseRequest answers requests that access.Gate refuses, or that the router does not
// serve.
func refuseRequest(w http.ResponseWriter, _ *http.Request, code int, err error) {
	refuse(w, code, err.Error(), refusals[code])
}

// refusals say what to do, by status.
var refusals = map[int]string{
	http.StatusUnauthorized:       "send the token (laxity --token.file=FILE does that)",
	http.StatusForbidden:          "call it on the node itself, or give the exporter a --web.bearer-token-file, or a --web.config.file with basic_auth_users or client certificates",
	http.StatusNotFound:           "see / for the list of pages",
	http.StatusMethodNotAllowed:   "use a method of the header Allow",
	http.StatusMisdirectedRequest: "start the exporter with --web.allowed-host=NAME if this name is its own",
	http.StatusTooManyRequests:    "ask less often",
	http.StatusServiceUnavailable: "see the exporter's log",
}
