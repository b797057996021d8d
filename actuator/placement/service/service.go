// Package service puts placement together for a daemon: facts by PromQL, the
// reservations on disk, the placer, the API and its page. Options → New → Run.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/actuator/placement/reservation"
)

// Options of a Service. StateDir and Querier are required.
type Options struct {
	// StateDir keeps placements.db, on a local disk.
	StateDir string
	// Querier is a Prometheus server, or the engine in this process.
	Querier prometheus.Querier
	// Method is how nodes are ranked; placement.DefaultMethod by default.
	Method placement.Method
	// TTL as in placer.Options.
	TTL time.Duration
	// Nodes are those of nodes.yaml; nil: none.
	Nodes *nodes.File
	// Local names the node of this process.
	Local  func() string
	Logger *slog.Logger
	Now    func() time.Time
}

// Service places containers.
type Service struct {
	o      Options
	store  *reservation.Store
	placer *placer.Placer
	source *prometheus.Source
	close  func() error
}

// New opens the files. Requests are answered from then on.
func New(o Options) (*Service, error) {
	if o.StateDir == "" || o.Querier == nil {
		return nil, errors.New("placement: StateDir and Querier are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Nodes == nil {
		o.Nodes = &nodes.File{}
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder (choose another with --state-dir): %w", err)
	}
	l, damaged, err := reservation.Open(filepath.Join(o.StateDir, "placements.db"), o.Now())
	if err != nil {
		return nil, err
	}
	if damaged != nil && o.Logger != nil {
		o.Logger.Error("the reservations of the last run are lost", "err", damaged)
	}
	source := prometheus.NewSource(o.Querier)
	p, err := placer.New(placer.Options{
		Source: source, Reservations: l, Method: o.Method, TTL: o.TTL, Logger: o.Logger, Now: o.Now,
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Service{o: o, store: l, placer: p, source: source, close: sync.OnceValue(l.Close)}, nil
}

// Register mounts the API and the page /placements; see api.Server.Register.
func (s *Service) Register(mux chi.Router, gate, queue func(http.Handler) http.Handler) {
	api.NewServer(api.Options{Placer: s.placer, Nodes: s.o.Nodes, Local: s.o.Local, Logger: s.o.Logger, Now: s.o.Now}).Register(mux, gate, queue)
	mux.Handle("GET /placements", queue(http.HandlerFunc(s.page)))
}

// Run confirms and ends reservations until ctx ends; then it closes the files.
func (s *Service) Run(ctx context.Context) error {
	return errors.Join(s.placer.Run(ctx), s.Close())
}

// Source knows the nodes, reservations not taken off.
func (s *Service) Source() placement.Source { return s.source }

// Method is how nodes are ranked.
func (s *Service) Method() placement.Method { return s.o.Method }

// Explain ranks the nodes, reservations taken off, and reserves nothing.
func (s *Service) Explain(ctx context.Context, req placer.Request) (placement.Ranking, error) {
	return s.placer.Explain(ctx, req)
}

// PlacePod reserves a GPU for a pod of Kubernetes, on one of the nodes that its scheduler leaves; see
// placer.Placer.PlacePod.
func (s *Service) PlacePod(ctx context.Context, pod reservation.Pod, nodes []string, req placer.Request) (reservation.Entry, placement.Ranking, error) {
	return s.placer.PlacePod(ctx, pod, nodes, req)
}

// PlaceAmong reserves a GPU on one of the nodes that another scheduler has; see placer.Placer.PlaceAmong.
func (s *Service) PlaceAmong(ctx context.Context, nodes []string, req placer.Request) (reservation.Entry, placement.Ranking, error) {
	return s.placer.PlaceAmong(ctx, nodes, req)
}

// Release takes a reservation back.
func (s *Service) Release(ctx context.Context, id string) error { return s.placer.Release(ctx, id) }

// ForgetPod ends what is reserved under the name of a pod; see placer.Placer.ForgetPod.
func (s *Service) ForgetPod(ctx context.Context, pod reservation.Pod) error {
	return s.placer.ForgetPod(ctx, pod)
}

// Close releases the files, when Run is not called. Again, it does nothing.
func (s *Service) Close() error { return s.close() }
