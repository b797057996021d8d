package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
)

// Options of a Server. Placer is required.
type Options struct {
	Placer *placer.Placer
	// Nodes says where the engines are; may be nil.
	Nodes *nodes.File
	// Local names the node on which this process runs: its engine is the local one
	// unless Nodes says otherwise.
	Local  func() string
	Logger *slog.Logger
	Now    func() time.Time
}

// Server answers the requests.
type Server struct{ o Options }

// NewServer makes a Server.
func NewServer(o Options) *Server {
	if o.Local == nil {
		o.Local = func() string { return "" }
	}
	if o.Nodes == nil {
		o.Nodes = &nodes.File{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{o}
}

// Register mounts
//
//	GET    /api/v1/nodes[?deadline=9s][&gpu_memory=4GiB][&estimate=3s][&image=NAME][&node=NAME][&ranking=predictive]
//	POST   /api/v1/placements             Wanted → Placed, 201; 200 with dry_run
//	GET    /api/v1/placements             the reservations, oldest first
//	POST   /api/v1/placements/{id}/check  right before the container is created
//	PUT    /api/v1/placements/{id}/container  {"container_id": …}, once it is
//	DELETE /api/v1/placements/{id}
//
// What changes something goes through gate; what anybody may ask and makes Prometheus answer goes
// through queue. Errors are {"error": …}, and with no room {"ranking": …}: 400 for what cannot be read, 404
// for an unknown node or reservation, 409 when there is no room now, 422 when no GPU
// will ever do, 503 when the facts cannot be had, or too many ask at once.
func (s *Server) Register(mux chi.Router, gate, queue func(http.Handler) http.Handler) {
	mux.Handle("GET /api/v1/nodes", queue(http.HandlerFunc(s.nodes)))
	mux.HandleFunc("GET /api/v1/placements", s.list)
	mux.Handle("POST /api/v1/placements", gate(http.HandlerFunc(s.place)))
	mux.Handle("POST /api/v1/placements/{id}/check", gate(http.HandlerFunc(s.check)))
	mux.Handle("PUT /api/v1/placements/{id}/container", gate(http.HandlerFunc(s.bind)))
	mux.Handle("DELETE /api/v1/placements/{id}", gate(http.HandlerFunc(s.release)))
}

func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	wanted := Wanted{Deadline: Text(q.Get("deadline")), GPUMemory: Text(q.Get("gpu_memory")), Estimate: Text(q.Get("estimate")),
		Image: q.Get("image"), Node: q.Get("node"), Ranking: q.Get("ranking")}
	req, err := wanted.Request()
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.explain(w, r, req, http.StatusOK, func(n Nodes) any { return n })
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request, req placer.Request, code int, wrap func(Nodes) any) {
	ranking, err := s.o.Placer.Explain(r.Context(), req)
	if err != nil {
		s.failed(w, err)
		return
	}
	write(w, code, wrap(s.nodesOf(ranking, req.Method)))
}

func (s *Server) nodesOf(r placement.Ranking, m placement.Method) Nodes {
	v := NodesOf(r, s.o.Now())
	if v.Ranking = m; m == "" {
		v.Ranking = s.o.Placer.Method()
	}
	return v
}

func (s *Server) place(w http.ResponseWriter, r *http.Request) {
	var wanted Wanted
	if err := decode(r, &wanted); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	req, err := wanted.Request()
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if wanted.DryRun {
		s.explain(w, r, req, http.StatusOK, func(n Nodes) any { return Placed{Placements: []Placement{}, Ranking: n} })
		return
	}
	if wanted.Ranking != "" {
		fail(w, http.StatusBadRequest, "ranking can be chosen with dry_run only: placements all follow that of the actuator (--ranking), or their reservations would not add up")
		return
	}
	entries, judged, err := s.o.Placer.Place(r.Context(), req)
	if err != nil {
		s.failed(w, err)
		return
	}
	out := Placed{Ranking: s.nodesOf(judged.Ranking, "")}
	if judged.Partial {
		out.Ranking.Partial = true
		out.Ranking.Summary = fmt.Sprintf("%s comes first of all nodes; the %d first were judged", entries[0].Node, len(judged.Ranking))
	}
	for _, e := range entries {
		out.Placements = append(out.Placements, s.placement(e, judged.Ranking))
	}
	write(w, http.StatusCreated, out)
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	out := []Placement{}
	for _, e := range s.o.Placer.List() {
		out = append(out, s.placement(e, nil))
	}
	write(w, http.StatusOK, out)
}

func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	e, err := s.o.Placer.Check(r.Context(), r.PathValue("id"))
	if err != nil {
		s.failed(w, err)
		return
	}
	write(w, http.StatusOK, s.placement(e, nil))
}

func (s *Server) bind(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ContainerID string `json:"container_id"`
	}
	if err := decode(r, &body); err != nil || body.ContainerID == "" {
		fail(w, http.StatusBadRequest, `write {"container_id": "…"}, the full id`)
		return
	}
	e, err := s.o.Placer.Bind(r.Context(), r.PathValue("id"), body.ContainerID)
	if err != nil {
		s.failed(w, err)
		return
	}
	write(w, http.StatusOK, s.placement(e, nil))
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	if err := s.o.Placer.Release(r.Context(), r.PathValue("id")); err != nil {
		s.failed(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) failed(w http.ResponseWriter, err error) {
	var (
		room    *placer.NoRoomError
		unknown *placer.UnknownNodeError
		large   *placer.TooLargeError
		source  *placer.SourceError
	)
	switch {
	case errors.As(err, &room):
		v := s.nodesOf(room.Ranking, "")
		write(w, http.StatusConflict, Failure{Error: err.Error(), Ranking: &v})
	case errors.As(err, &unknown), errors.Is(err, placer.ErrNotFound):
		fail(w, http.StatusNotFound, err.Error())
	case errors.As(err, &large):
		fail(w, http.StatusUnprocessableEntity, err.Error())
	case errors.As(err, &source):
		s.o.Logger.Warn("Nothing can be placed", "err", source.Err)
		fail(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // its client is gone, or too many ask
		fail(w, http.StatusServiceUnavailable, err.Error())
	default:
		s.o.Logger.Error("Placement failed", "err", err)
		fail(w, http.StatusInternalServerError, err.Error())
	}
}
