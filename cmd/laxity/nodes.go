package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/internal/plain"
)

const nodesHelp = `List the nodes, the best one first, and why Laxity would not take the others.

  laxity nodes                                  for a container without a deadline
  laxity nodes --deadline 9s --gpu-memory 4GiB  for one with these
  laxity nodes --deadline 9s --estimate 3s --ranking paper

There are two rankings. predictive takes the GPUs on which every deadline would still hold with the
new task's run time added to the present work, the one that leaves the new task the most time first.
paper is the one of P2, for the record: the nodes where no container missed its last deadline, with
GPU use and memory below 100 % and a float above the new deadline, the most free GPU memory first.`

const placeHelp = `Reserve a GPU for a container. With --dry-run, say which one it would be and why.

  laxity place --dry-run --deadline 9s --gpu-memory 4GiB
  laxity place --deadline 9s --gpu-memory 4GiB --count 3

laxity run does this itself. place is for programs that create containers on their own. They
report the container (PUT /api/v1/placements/ID/container), or the reservation expires.`

const placementsHelp = `List the reservations, or cancel one.

Where kube-scheduler places pods, POD says for which pod a reservation is, as namespace/name.

  laxity placements
  laxity placements --json
  laxity placements --release ID`

// placementCommands are those that ask the actuator about nodes, with their flags. A command line
// has one command, so they share what several of them have.
type placementCommands struct {
	*cli
	address       string
	asJSON, whole bool
	count         int
	release       string
	wanted        api.Wanted
}

func (c *cli) addPlacement() {
	c.addRun()
	p := &placementCommands{cli: c, count: 1}
	p.wanted.Count = &p.count
	nodes, place, placements := p.add("nodes", nodesHelp, p.nodes), p.add("place", placeHelp, p.place), p.add("placements", placementsHelp, p.placements)
	for _, cmd := range []*kingpin.CmdClause{nodes, place} {
		cmd.Flag("deadline", "Deadline of each GPU task after its start: 9s, 250ms.").StringVar((*string)(&p.wanted.Deadline))
		cmd.Flag("gpu-memory", "GPU memory that it may hold: 4GiB.").StringVar((*string)(&p.wanted.GPUMemory))
		cmd.Flag("estimate", "How long one of its tasks takes, for the predictive ranking.").StringVar((*string)(&p.wanted.Estimate))
		cmd.Flag("image", "Its image. Without --estimate the run time of its last tasks counts.").StringVar(&p.wanted.Image)
		cmd.Flag("node", "Only this node.").StringVar(&p.wanted.Node)
		cmd.Flag("ranking", "paper or predictive. Default: the actuator's.").EnumVar(&p.wanted.Ranking, append([]string{""}, placement.Methods...)...)
	}
	place.Flag("count", "How many containers. All get a place, or none.").Default("1").IntVar(&p.count)
	place.Flag("dry-run", "Reserve nothing.").BoolVar(&p.wanted.DryRun)
	placements.Flag("release", "Cancel this reservation.").StringVar(&p.release)
	for _, cmd := range []*kingpin.CmdClause{place, placements} {
		cmd.Flag("no-trunc", noTruncHelp).BoolVar(&p.whole)
	}
}

// add adds a command that asks the actuator, for 30 s at most.
func (p *placementCommands) add(name, help string, do func(context.Context, *api.Client) error) *kingpin.CmdClause {
	cmd := p.command(name, help, func(ctx context.Context, _ *slog.Logger) error {
		if _, err := p.wanted.Request(); err != nil { // the same words as the actuator's, and at once
			return usage.Wrong(err)
		}
		transport, err := p.client()
		if err != nil {
			return err
		}
		client, err := api.NewClient(p.address, transport)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return refused(do(ctx, client))
	})
	usage.Address(cmd.Flag("actuator.url", "Address of the actuator that places (or of laxity up's).").Envar(actuatorEnv), defaultActuator, &p.address)
	cmd.Flag("json", "Print JSON.").BoolVar(&p.asJSON)
	p.quiet[name] = true
	return cmd
}

func (p *placementCommands) nodes(ctx context.Context, client *api.Client) error {
	n, err := client.Nodes(ctx, p.wanted)
	if err != nil {
		return err
	}
	return p.showNodes(n, p.asJSON)
}

func (p *placementCommands) place(ctx context.Context, client *api.Client) error {
	placed, err := client.Place(ctx, p.wanted)
	if err != nil {
		return err
	}
	return p.showPlaced(placed, p.wanted.DryRun, p.asJSON, p.whole)
}

func (p *placementCommands) placements(ctx context.Context, client *api.Client) error {
	if p.release != "" {
		return client.Release(ctx, p.release)
	}
	list, err := client.List(ctx)
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(p.out, list)
	}
	names := view.WholeGPU
	if !p.whole {
		n, _ := client.Nodes(ctx, api.Wanted{}) // without it GPUs have short UUIDs
		names = view.NamesOfNodes(n)
	}
	return view.Placements(p.out, list, names, time.Now(), view.Width(p.out))
}

// refused adds a hint where credentials are missing.
func refused(err error) error {
	var answer *api.RefusedError
	if errors.As(err, &answer) {
		return denied(answer.Code, err)
	}
	return err
}

func (c *cli) showNodes(n api.Nodes, asJSON bool) error {
	if asJSON {
		return writeJSON(c.out, n)
	}
	return view.Nodes(c.out, n, view.Width(c.out))
}

func (c *cli) showPlaced(p api.Placed, dry, asJSON, whole bool) error {
	names := view.NamesOfNodes(p.Ranking)
	if whole {
		names = view.WholeGPU
	}
	switch {
	case asJSON:
		return writeJSON(c.out, p)
	case dry:
		return c.showNodes(p.Ranking, false)
	}
	for _, one := range p.Placements {
		fmt.Fprintf(c.out, "%s  node %s  GPU %s  until %s\n", plain.Line(one.ID), plain.Line(one.Node), plain.Line(names(one.Node, one.GPU)), one.Expires.Format(time.TimeOnly))
	}
	return nil
}
