// Package swarm makes Docker Swarm place by the ranking: it keeps labels on the
// nodes of a swarm, which any service can use as constraint or preference, and
// creates services on the node that the ranking chooses.
//
// Which labels change is decided in labels.go, which is pure. The rest is an
// adapter of the Docker client; of ours it imports actuator/placement and exporter/task.
package swarm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/placement"
)

// Engine is a manager of the swarm.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	NodeList(ctx context.Context, options swarm.NodeListOptions) ([]swarm.Node, error)
	NodeUpdate(ctx context.Context, nodeID string, version swarm.Version, node swarm.NodeSpec) error
	ServiceCreate(ctx context.Context, service swarm.ServiceSpec, options swarm.ServiceCreateOptions) (swarm.ServiceCreateResponse, error)
}

var _ Engine = (*client.Client)(nil)

// ErrNoManager means that the engine manages no swarm.
var ErrNoManager = errors.New("this engine is no manager of a swarm")

// Options of a Swarm. Engine and Source are required.
type Options struct {
	Engine Engine
	Source placement.Source
	// Method says which nodes can take a container; placement.DefaultMethod by default.
	Method placement.Method
	// Interval is the time between looks at facts and swarm; 5 s by default.
	Interval time.Duration
	// Settle is how long a node must be provisionable before it is labelled so
	// again; 10 s by default. What is not provisionable is labelled at once.
	Settle time.Duration
	// Pause is the least time between two changes of a node's rank; 30 s by
	// default.
	Pause time.Duration
	// AtOnce is the most changes of one round; 20 by default.
	AtOnce int
	// DryRun changes nothing and says the same.
	DryRun bool
	Logger *slog.Logger
	Now    func() time.Time
}

// maxAge is how long facts count while no new ones can be had; then no node is
// provisionable.
const maxAge = 30 * time.Second

// Swarm keeps the labels while Run runs.
type Swarm struct {
	o      Options
	keeper keeper

	facts   map[string]fact
	factsAt time.Time
	trouble string // said once
}

// New makes a Swarm; it calls nobody.
func New(o Options) (*Swarm, error) {
	if o.Engine == nil || o.Source == nil {
		return nil, errors.New("swarm: Engine and Source are required")
	}
	duration := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	duration(&o.Interval, 5*time.Second)
	duration(&o.Settle, 10*time.Second)
	duration(&o.Pause, 30*time.Second)
	o.Method = cmp.Or(o.Method, placement.DefaultMethod)
	if o.AtOnce <= 0 {
		o.AtOnce = 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Swarm{o: o, keeper: keeper{damping{o.Settle, o.Pause, o.AtOnce}, map[string]*history{}}}, nil
}

// Run keeps the labels until ctx ends. What fails is said once and tried again:
// an engine that is no manager now may become one.
func (s *Swarm) Run(ctx context.Context) error {
	tick := time.NewTicker(s.o.Interval)
	defer tick.Stop()
	for {
		_, err := s.Step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.say(err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Swarm) say(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == s.trouble:
	case text != "":
		s.o.Logger.Warn("the labels of the swarm's nodes are not kept", "err", err)
	default:
		s.o.Logger.Info("the labels of the swarm's nodes are kept")
	}
	s.trouble = text
}

// Step looks once and returns how many nodes it changed. It must not be called
// while Run runs.
func (s *Swarm) Step(ctx context.Context) (changed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.o.Interval, 10*time.Second))
	defer cancel()
	list, err := s.members(ctx)
	if err != nil {
		return 0, err
	}
	unknown := s.learn(ctx)
	if s.factsAt.IsZero() {
		return 0, unknown // nothing was ever known: leave the labels of before
	}
	members := make([]member, 0, len(list))
	nodes := map[string]swarm.Node{}
	for _, n := range list {
		members = append(members, memberOf(n))
		nodes[n.ID] = n
	}
	errs := []error{unknown}
	for _, c := range s.keeper.changes(members, s.facts, s.o.Now()) {
		if err := s.update(ctx, nodes[c.id], c); err != nil {
			errs = append(errs, err)
			continue
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

// learn reads the facts. While they cannot be had, the last ones count, for a
// time; then every node that was known is not provisionable.
func (s *Swarm) learn(ctx context.Context) error {
	nodes, err := s.o.Source.Nodes(ctx)
	now := s.o.Now()
	if err != nil {
		if !s.factsAt.IsZero() && now.Sub(s.factsAt) > maxAge {
			for name := range s.facts {
				s.facts[name] = fact{}
			}
		}
		return err
	}
	s.facts, s.factsAt = make(map[string]fact, len(nodes)), now
	for _, v := range s.o.Method.Rank(nodes, placement.Request{}, now) {
		s.facts[v.Node.Name] = fact{v.Candidate(), score(s.o.Method, v.Node)}
	}
	return nil
}

// score is by what the nodes that can take a container are ranked: the paper's, or the memory that is free on
// the best GPU that is open.
func score(m placement.Method, n placement.Node) (most float64) {
	if m == placement.Paper {
		return n.Score
	}
	for _, g := range n.GPUs {
		if g.Open {
			most = max(most, float64(g.MemoryFree))
		}
	}
	return most
}

func (s *Swarm) members(ctx context.Context) ([]swarm.Node, error) {
	info, err := s.o.Engine.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("swarm: %w", err)
	}
	if !info.Swarm.ControlAvailable {
		return nil, fmt.Errorf("swarm: %w; start the actuator with --swarm on a manager", ErrNoManager)
	}
	list, err := s.o.Engine.NodeList(ctx, swarm.NodeListOptions{})
	if err != nil {
		return nil, fmt.Errorf("swarm: list the nodes (has the swarm a quorum of managers?): %w", err)
	}
	return list, nil
}

func memberOf(n swarm.Node) member {
	name := n.Spec.Labels[LabelNode]
	if name == "" {
		name = n.Description.Hostname
	}
	up := n.Status.State == swarm.NodeStateReady
	return member{id: n.ID, name: name, up: up, ready: up && n.Spec.Availability == swarm.NodeAvailabilityActive, labels: n.Spec.Labels}
}

// update writes the labels. A node that somebody else changed meanwhile is an
// error; the next round reads it anew.
func (s *Swarm) update(ctx context.Context, n swarm.Node, c change) error {
	spec := n.Spec
	spec.Labels = c.apply(spec.Labels)
	if !s.o.DryRun {
		if err := s.o.Engine.NodeUpdate(ctx, n.ID, n.Version, spec); err != nil {
			return fmt.Errorf("swarm: label node %s: %w", c.name, err)
		}
	}
	s.o.Logger.Info("labelled a node of the swarm", "node", c.name, "provisionable", spec.Labels[LabelProvisionable],
		"rank", spec.Labels[LabelRank], "why", c.why, "dry_run", s.o.DryRun)
	return nil
}
