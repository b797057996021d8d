package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/kubernetes"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/actuator/placement/service"
	"github.com/laxity/laxity/actuator/placement/swarm"
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

// openNodes reads nodes.yaml, for placement and for forwarding; without a file there is nothing to
// forward to. The actuator's reload reads it again.
func openNodes(path string, o *actuator.Options) (*nodes.File, error) {
	list, err := nodes.Open(path)
	if err != nil || path == "" {
		return list, err
	}
	o.Peers = list
	load, base := o.Load, o.Config
	o.Load = func() (config.Config, error) {
		c := base
		if load != nil {
			var err error
			if c, err = load(); err != nil {
				return base, err
			}
		}
		return c, list.Reload() // last, since it takes effect at once: a bad file of the two changes nothing
	}
	return list, nil
}

// nodesEvery is how often a changed nodes.yaml is looked for: service discovery
// writes such files at any time.
const nodesEvery = 5 * time.Second

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

// followFile reads a file again whenever it has changed; a bad one is said once,
// and the old content stays.
func followFile(path string, every time.Duration, reload func() error, logger *slog.Logger) func(context.Context) error {
	last, _ := os.Stat(path)
	return func(ctx context.Context) error {
		if path == "" {
			return nil
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			now, err := os.Stat(path)
			if err != nil || last != nil && now.ModTime().Equal(last.ModTime()) && now.Size() == last.Size() && os.SameFile(now, last) {
				continue // while it is being replaced it may be away
			}
			last = now
			if err := reload(); err != nil {
				logger.Error("the old list of nodes stays", "err", err)
				continue
			}
			logger.Info("read the list of nodes again", "file", path)
		}
	}
}
