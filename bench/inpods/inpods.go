// Package inpods measures in pods of containerd what other experiments measure in containers of Docker.
package inpods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/arbitrate"
	"github.com/laxity/laxity/bench/fit"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/serve"
	"github.com/laxity/laxity/internal/engine"
)

const about = `Three other experiments, as they are described on this page, with another engine: each container is in a pod
that the CRI service of a containerd of its own makes, as kubelet makes it, and what Laxity reads there are the pod's annotations.
Laxity watches that containerd alone. Deadlines are the set of that name of arbitrate: 8 tasks in shuffled order. Serve is a
server beside one trainer and beside four. Fit are containers that take 128 MiB after 128 MiB up to a limit of 1 GiB, on a card
of which 5 GiB are free. No kubelet and no API server take part.`

// part is another experiment, with some of its settings.
type part struct {
	name string
	bench.Experiment
	runs string // its setting of how often it runs
	args map[string]string
}

func parts() []part {
	return []part{
		{"deadlines", arbitrate.Experiment(), "repeats", map[string]string{"sets": "deadlines", "ways": "default,edf"}},
		{"serve", serve.Experiment(), "runs", map[string]string{"ways": "default,laxity"}},
		{"fit", fit.Experiment(), "runs", map[string]string{}},
	}
}

// Experiment is what they measure in pods.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "in-pods", Title: "Deadlines, a server and limits of memory in pods of containerd", About: about,
		Settings: []bench.Setting{
			{Name: "parts", Means: "as deadlines,serve; of deadlines, serve, fit. All", Part: true},
			{Name: "runs", Means: "runs of each; 1", Part: true},
			{Name: "verbose", Means: "any value: the logs of Laxity on the standard error", Part: true},
		},
		Portions: true, Run: run, Figures: figures, Table: table,
	}
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	all := parts()
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	wanted, err := env.Some("parts", names, names)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p part) bool { return !slices.Contains(wanted, p.name) })
	runs, err := env.Number("runs", 1, 1)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		env.Log("part %s", p.name)
		its := env
		its.Args = map[string]string{rig.Engine.Name: engine.Containerd, p.runs: strconv.Itoa(runs)}
		maps.Copy(its.Args, p.args)
		if said, ok := env.Args["verbose"]; ok {
			its.Args["verbose"] = said
		}
		its.Earlier = of(env.Earlier, p)
		found, err := p.Run(ctx, its)
		for _, r := range found {
			r["part"] = p.name
		}
		rows = append(rows, found...)
		if err != nil {
			return rows, fmt.Errorf("part %s: %w", p.name, err)
		}
	}
	return rows, nil
}

// of are the rows of a part.
func of(rows []bench.Row, p part) []bench.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r bench.Row) bool { return r.Str("part") != p.name })
}

// figures are those of the parts. Their names say that they are of pods.
func figures(rows []bench.Row) (all []bench.Figure) {
	for _, p := range parts() {
		its := of(rows, p)
		if len(its) == 0 {
			continue
		}
		for _, f := range p.Figures(its) {
			f.Name = "pods_" + f.Name
			all = append(all, f)
		}
	}
	return all
}

// table has the tables of the parts, each of which has columns of its own.
func table(rows []bench.Row) [][]string {
	out := [][]string{{"PART", "MEASURED"}}
	for _, p := range parts() {
		its := of(rows, p)
		if len(its) == 0 {
			continue
		}
		lines := p.Table(its)
		for _, line := range lines[1:] {
			var said []string
			for i, cell := range line {
				if cell != "" && cell != "-" {
					said = append(said, lines[0][i]+" "+cell)
				}
			}
			out = append(out, []string{p.name, strings.Join(said, ", ")})
		}
	}
	return out
}
