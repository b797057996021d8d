// Package scale measures the ranking of nodes at fleet size: P2's Fig. 11.
package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/task"
)

const about = `Simulated nodes, each with 4 GPUs and 8 containers, made up by the exporter's own collector: every
series that a real one exposes; no two GPUs of a kind have the same memory in use. The repository's rules run in the engine of ` + "`laxity up`" + ` and in a real
Prometheus server, which scrapes pages of 100 nodes each. Decision: from the question (a deadline,
a size) to node and GPU, by the placer that the actuator has: Prometheus orders the nodes, the facts of
the first 9 are read and judged, and the reservation is written to disk (Write: what of it that takes);
between scrapes and evaluations, and (busy) while they go on, on the same cores. Predictive: the same by
the predictive ranking; crowded: its query where no GPU is without work, facts included, nothing reserved.
Explained: every node with its reasons. Asked: P2's master, which asks every node, sorts and takes the
first; here all on one host, 64 at once, so without a network's delay and without the monitoring that
each node does. A p99 is of 100 decisions at least. Rules: one evaluation of all of them, the groups added up (a server evaluates groups at the
same time), and its processor time (the server's: with the rules less without; the embedded engine's: with
the gathering of the nodes' series). Memory is RssAnon.`

// Kinds of decisions: while nothing else goes on, and during scrapes and
// evaluations; by the predictive ranking, and its query for busy GPUs.
const (
	quiet      = "decision"
	busy       = "busy decision"
	predictive = "predictive decision"
	crowded    = "crowded decision"
)

// Ways that are compared.
const (
	embedded = "embedded engine"
	server   = "Prometheus"
	asked    = "every node asked (P2)"
)

// Experiment is P2's Fig. 11. Settings: nodes (10,100,1000,10000), decisions, and
// ways (embedded,server,asked).
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "scale", Title: "From query to decision, by number of nodes (P2, Fig. 11)", About: about,
		Settings: []bench.Setting{
			{Name: "nodes", Means: "sizes of the fleet, each from 10 to 99999; 10,100,1000,10000"},
			{Name: "decisions", Means: "how many decisions at each size; 300"},
			{Name: "ways", Means: "embedded, server, asked, or several of them; all"},
		},
		Run: run, Figures: figures, Table: table,
	}
}

// sizing is what one size is measured with.
type sizing struct {
	nodes, decisions, evaluations, explained int
	interval                                 time.Duration // of scrapes and evaluations
}

func sizings(env bench.Env) ([]sizing, error) {
	list, decisions := "10,100,1000,10000", 300
	if env.Quick {
		list, decisions = "10,100", 30
	}
	if v := env.Args["nodes"]; v != "" {
		list = v
	}
	decisions, err := env.Number("decisions", 1, decisions)
	if err != nil {
		return nil, err
	}
	var out []sizing
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 10 || n > 99_999 {
			return nil, fmt.Errorf("nodes=%q: write numbers from 10 to 99999, with commas", list)
		}
		// Facts count as fresh for 30 s, so that the largest fleets are scraped
		// every 20 s; smaller ones more often.
		s := sizing{nodes: n, decisions: decisions, evaluations: 5, explained: 10, interval: 5 * time.Second}
		if n > 2000 {
			s.interval, s.explained, s.evaluations = 20*time.Second, 3, 3
		}
		out = append(out, s)
	}
	return out, nil
}

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	sizes, err := sizings(env)
	if err != nil {
		return nil, err
	}
	fleet, err := newFleet(env.Seed, time.Now())
	if err != nil {
		return nil, err
	}
	var rows []bench.Row
	var errs []error
	for _, s := range sizes {
		for _, way := range []struct {
			setting, name string
			measure       func(context.Context, bench.Env, *fleetOf) ([]bench.Row, error)
		}{{"embedded", embedded, measureEmbedded}, {"server", server, measureServer}, {"asked", asked, measureAsked}} {
			if v := env.Args["ways"]; v != "" && !strings.Contains(v, way.setting) {
				continue
			}
			env.Log("%d nodes: %s", s.nodes, way.name)
			// What the one before used is not this one's.
			debug.FreeOSMemory()
			got, err := way.measure(ctx, env, &fleetOf{fleet, s})
			var skip skipped
			if errors.As(err, &skip) {
				env.Log("%s is skipped: %v", way.name, err)
				got, err = []bench.Row{{"kind": "skipped", "reason": err.Error()}}, nil
			}
			for _, r := range got {
				r["way"], r["nodes"] = way.name, float64(s.nodes)
				rows = append(rows, r)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %d nodes: %w", way.name, s.nodes, err))
			}
			if ctx.Err() != nil {
				return rows, errors.Join(errs...)
			}
		}
	}
	return rows, errors.Join(errs...)
}

// skipped is why something cannot be measured here.
type skipped string

func (s skipped) Error() string { return string(s) }

// fleetOf is a fleet of one size.
type fleetOf struct {
	*fleet
	sizing
}

// requests returns the questions, repeatable.
func requests(seed uint64, n int) []placement.Request {
	random := rand.New(rand.NewPCG(seed, 11))
	out := make([]placement.Request, n)
	for i := range out {
		out[i] = placement.Request{Deadline: task.Seconds(1 + random.IntN(30)), GPUMemory: uint64(1+random.IntN(32)) << 30}
	}
	return out
}

// explanations asks for every node with its reasons.
func explanations(ctx context.Context, s sizing, source *prometheus.Source) ([]bench.Row, error) {
	var rows []bench.Row
	for range s.explained {
		begin := time.Now()
		nodes, err := source.Nodes(ctx)
		if err != nil {
			// A limit of the server or a timeout is a result too.
			rows = append(rows, bench.Row{"kind": "explained", "error": err.Error()})
			return rows, nil //nolint:nilerr // it is in the row
		}
		r := placement.Paper.Rank(nodes, placement.Request{Deadline: 9, GPUMemory: 4 << 30}, time.Now())
		rows = append(rows, bench.Row{"kind": "explained", "seconds": time.Since(begin).Seconds(), "listed": float64(len(r))})
	}
	return rows, nil
}

// series asks how many series one node has: in the exporter's metrics and
// recorded by rules (alerts included), of the node that has the most.
func series(ctx context.Context, q prometheus.Querier) (bench.Row, error) {
	row := bench.Row{"kind": "series"}
	for key, selector := range map[string]string{
		"series_per_node":   `{node=~"n000[0-5].",__name__!=""}`,
		"recorded_per_node": `{node=~"n000[0-5].",__name__=~".*:.*|ALERTS|ALERTS_FOR_STATE"}`,
	} {
		v, err := q.Query(ctx, `max(count by (node) (`+selector+`))`, time.Time{})
		if err != nil {
			return nil, err
		}
		if len(v) == 1 {
			row[key] = float64(v[0].Value)
		}
	}
	return row, nil
}
