package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/kubernetes"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/actuator/placement/service"
	"github.com/laxity/laxity/actuator/placement/swarm"
	"github.com/laxity/laxity/cmd/internal/nodesfile"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/engine"
)

// clusterFlags say which clusters' schedulers this actuator serves.
type clusterFlags struct{ swarm, kubernetes bool }

func (c *clusterFlags) register(cmd *kingpin.CmdClause) {
	cmd.Flag("swarm", "Keep the labels laxity.provisionable and laxity.rank on the nodes of the Docker swarm that this engine manages, and place services: POST /api/v1/swarm/services. Needs --prometheus.url.").
		BoolVar(&c.swarm)
	cmd.Flag("kubernetes", "Answer kube-scheduler as a scheduler extender: /api/v1/kubernetes/filter. Needs --prometheus.url.").
		BoolVar(&c.kubernetes)
}

// open mounts what is asked for, and returns what has to run.
func (c *clusterFlags) open(o *actuator.Options, places *service.Service) (run func(context.Context) error, err error) {
	run = func(context.Context) error { return nil }
	if !c.swarm && !c.kubernetes {
		return run, nil
	}
	if places == nil {
		return nil, usage.Wrong(errors.New("--swarm and --kubernetes need --prometheus.url, which knows the nodes"))
	}
	r := ranker{places}
	if c.kubernetes {
		o.Mount = append(o.Mount, func(mux chi.Router, gate *access.Gate) {
			kubernetes.Register(mux, gate.May, r, o.Logger)
		})
	}
	if !c.swarm {
		return run, nil
	}
	choice, _ := o.Engine.Resolve(engine.This)
	if choice.Kind != engine.Docker {
		return nil, errors.New("--swarm needs Docker: the engine is " + choice.Kind + " (--engine=docker chooses)")
	}
	docker, err := docker.Dial(choice.DockerHost)
	if err != nil {
		return nil, err
	}
	s, err := swarm.New(swarm.Options{Engine: docker, Source: places.Source(), Method: places.Method(), DryRun: o.DryRun, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	o.Mount = append(o.Mount, func(mux chi.Router, gate *access.Gate) {
		mux.Handle("POST /api/v1/swarm/services", gate.Change(s.Handler(r)))
	})
	return s.Run, nil
}

// ranker is what the schedulers of others ask of the placement service.
type ranker struct{ s *service.Service }

// Place implements kubernetes.Placer.
func (r ranker) Place(ctx context.Context, q kubernetes.Question) (string, placement.Ranking, error) {
	e, ranking, err := r.s.PlacePod(ctx, podOf(q), q.Nodes, placer.Request{Request: q.Request, Image: q.Image})
	return e.Node, ranking, err
}

// Forget implements kubernetes.Placer.
func (r ranker) Forget(ctx context.Context, q kubernetes.Question) error {
	return r.s.ForgetPod(ctx, podOf(q))
}

func podOf(q kubernetes.Question) reservation.Pod {
	return reservation.Pod{Namespace: q.Namespace, Name: q.Pod, UID: q.UID}
}

// Reserve implements swarm.Reserver.
func (r ranker) Reserve(ctx context.Context, among []string, req placement.Request) (swarm.Reserved, placement.Ranking, error) {
	e, ranking, err := r.s.PlaceAmong(ctx, among, placer.Request{Request: req})
	return swarm.Reserved{ID: e.ID, Node: e.Node, GPU: e.GPU}, ranking, err
}

// Release implements swarm.Reserver.
func (r ranker) Release(ctx context.Context, id string) error { return r.s.Release(ctx, id) }

// openNodes opens nodes.yaml, for placement and for forwarding; without a file there is nothing to
// forward to.
func openNodes(path string, o *actuator.Options) (*nodes.File, error) {
	list, load, err := nodesfile.Open(path, o.Config, o.Load)
	if err == nil && path != "" {
		o.Load, o.Peers = load, list
	}
	return list, err
}

// background runs what has to run beside the actuator until stop is called.
func background(ctx context.Context, logger *slog.Logger, parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() {
			if err := part(ctx); err != nil {
				logger.Error("cluster", "err", err)
			}
		})
	}
	return func() { cancel(); running.Wait() }
}
