package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-chi/chi/v5"
	promconfig "github.com/prometheus/common/config"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/actuator/placement/service"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/internal/access"
)

// placementFlags say whether and how this actuator places containers.
type placementFlags struct {
	prometheus, prometheusConfig string
	ranking                      string
	ttl                          time.Duration
	nodes                        string
}

func (p *placementFlags) register(cmd *kingpin.CmdClause) {
	cmd.Flag("prometheus.url", "Prometheus that records rules/recording.yml, or what speaks its query API (Thanos, Mimir). With it this actuator ranks nodes and places containers: /api/v1/nodes, /api/v1/placements. One actuator of a cluster should.").
		StringVar(&p.prometheus)
	cmd.Flag("prometheus.config.file", "TLS and authorization towards it, as an http_config of Prometheus.").StringVar(&p.prometheusConfig)
	cmd.Flag("ranking", "How nodes are ranked: predictive (where every deadline still holds, with the most time to spare) or paper (most free memory among those whose float is above the new deadline).").
		Default(string(placement.DefaultMethod)).EnumVar(&p.ranking, placement.Methods...)
	usage.Positive(cmd.Flag("placement.ttl", "How long a reservation waits for its container, and then for the container's first task."), placer.DefaultTTL, &p.ttl)
	cmd.Flag("nodes.file", "nodes.yaml, or a file_sd file: for each node the addresses of its exporter, actuator and Docker engine. Alerts about another node are passed on to its actuator. Read again when it changes.").StringVar(&p.nodes)
}

// httpConfig reads an http_config of Prometheus; Prometheus's defaults without a file.
func httpConfig(file string) (promconfig.HTTPClientConfig, error) {
	if file == "" {
		return promconfig.DefaultHTTPClientConfig, nil
	}
	c, _, err := promconfig.LoadHTTPConfigFile(file)
	if err != nil {
		return promconfig.HTTPClientConfig{}, err
	}
	return *c, nil
}

// open makes the placement service and mounts it on the actuator; nil without
// --prometheus.url. local names the actuator's node.
func (p *placementFlags) open(o *actuator.Options, list *nodes.File, local func() string) (*service.Service, error) {
	if p.prometheus == "" {
		return nil, nil
	}
	towards, err := httpConfig(p.prometheusConfig)
	if err != nil {
		return nil, fmt.Errorf("--prometheus.config.file: %w", err)
	}
	rt, err := promconfig.NewRoundTripperFromConfig(towards, "laxity-placement")
	if err != nil {
		return nil, fmt.Errorf("--prometheus.config.file: %w", err)
	}
	client, err := prometheus.NewClient(p.prometheus, rt)
	if err != nil {
		return nil, fmt.Errorf("--prometheus.url: %w", err)
	}
	s, err := service.New(service.Options{
		StateDir: o.StateDir, Querier: client, Method: placement.Method(p.ranking), TTL: p.ttl,
		Nodes: list, Local: local, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	o.Mount = append(o.Mount, func(r chi.Router, gate *access.Gate) { s.Register(r, gate.Change, gate.Queue) })
	o.Ranking = s.Overview
	return s, nil
}

// follow runs the service until stop is called; nil is no service.
func follow(ctx context.Context, s *service.Service, logger *slog.Logger) (stop func()) {
	if s == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); err != nil {
			logger.Error("placement", "err", err)
		}
	}()
	return func() { cancel(); <-ended }
}
