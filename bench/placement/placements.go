// Package placement measures placement: whether reservations hold under load, and
// how well the rankings choose.
package placement

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/actuator/placement/service"
	"github.com/laxity/laxity/bench"
)

const aboutPlacements = `1,000 placements from 50 clients at once, on 20 nodes with 4 GPUs of 80 GiB each. Every client asks
for 4–8 GiB, checks right before it "creates" a container, reports it (three HTTP requests, which are timed
together), and goes on; the container takes its memory 0.05–0.5 s later.
The facts are those of a scrape every 0.1 s, so older than the truth; reservations are written to disk. A placement is
over-committed when its GPU has then promised more than it has. Against: the same ranking over the same
facts without reservations.`

// Ways of placing.
const (
	laxity  = "laxity"
	without = "no reservations"
)

// Placements is the experiment of concurrent placements.
func Placements() bench.Experiment {
	return bench.Experiment{
		Name: "placements", Title: "Many placements at the same moment", About: aboutPlacements,
		Run: runPlacements, Figures: placementFigures, Table: placementTable,
	}
}

// scene is how much is placed where.
type scene struct{ nodes, gpus, clients, each int }

func runPlacements(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	s := scene{nodes: 20, gpus: 4, clients: 50, each: 20}
	if env.Quick {
		s = scene{nodes: 2, gpus: 2, clients: 10, each: 6}
	}
	var rows []bench.Row
	for _, way := range []string{laxity, without} {
		env.Log("%d placements from %d clients: %s", s.clients*s.each, s.clients, way)
		got, err := placeAll(ctx, env.Seed, s, way)
		rows = append(rows, got...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

const cardMemory = 80 * gib

func placeAll(ctx context.Context, seed uint64, s scene, way string) ([]bench.Row, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newCluster(s.nodes, s.gpus, cardMemory, 100*time.Millisecond)
	go c.run(ctx)
	place, stop, err := placeWith(c, way)
	if err != nil {
		return nil, err
	}
	defer stop()
	var (
		mu   sync.Mutex
		rows []bench.Row
		errs []error
		all  sync.WaitGroup
	)
	for client := range s.clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			for i := range s.each {
				memory := need(random)
				id := fmt.Sprintf("c%02d%03d", client, i)
				begin := time.Now()
				gpu, err := place(ctx, id, memory)
				took := time.Since(begin)
				row := bench.Row{"way": way, "client": float64(client), "seconds": took.Seconds(), "memory_gib": float64(memory / gib), "placed": gpu != ""}
				if gpu != "" {
					row["gpu"] = gpu
					c.start(id, gpu, memory, 50*time.Millisecond+time.Duration(random.IntN(450))*time.Millisecond)
				}
				mu.Lock()
				rows = append(rows, row)
				if err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return rows, errors.Join(errs...)
}

// placeWith returns a function that finds a GPU for a container of this id; "" when
// there is none.
func placeWith(c *cluster, way string) (place func(ctx context.Context, id string, memory uint64) (string, error), stop func(), err error) {
	if way == without {
		source := prometheus.NewSource(c)
		return func(ctx context.Context, _ string, memory uint64) (string, error) {
			nodes, err := source.Nodes(ctx)
			if err != nil {
				return "", err
			}
			best, _ := placement.Paper.Rank(nodes, placement.Request{GPUMemory: memory}, time.Now()).Best()
			return best.GPU, nil
		}, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "laxity-bench-")
	if err != nil {
		return nil, nil, err
	}
	svc, err := service.New(service.Options{StateDir: dir, Querier: c, Method: placement.Paper})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	mux := chi.NewRouter()
	open := func(h http.Handler) http.Handler { return h } // nobody else is there
	svc.Register(mux, open, open)
	server := httptest.NewServer(mux)
	client, err := api.NewClient(server.URL, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}})
	stop = func() {
		server.Close()
		_ = svc.Close()
		_ = os.RemoveAll(dir)
	}
	return func(ctx context.Context, id string, memory uint64) (string, error) {
		placed, err := client.Place(ctx, api.Wanted{GPUMemory: api.Text(fmt.Sprint(memory))})
		var refused *api.RefusedError
		if errors.As(err, &refused) && refused.Code == http.StatusConflict {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		p := placed.Placements[0]
		// Not timed by the caller alone: what a placement costs is asking, checking
		// and reporting.
		err = client.Check(ctx, p.ID)
		if errors.As(err, &refused) && refused.Code == http.StatusConflict {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return p.GPU, client.Bind(ctx, p.ID, id)
	}, stop, err
}

// overCommitted counts the placements after which a GPU has promised more than it
// has.
func overCommitted(rows []bench.Row, way string) (n, placed int) {
	promised := map[string]float64{}
	for _, r := range rows {
		gpu := r.Str("gpu")
		if r.Str("way") != way || gpu == "" {
			continue
		}
		placed++
		if promised[gpu] += r.Num("memory_gib"); promised[gpu] > cardMemory/gib {
			n++
		}
	}
	return n, placed
}

func placementFigures(rows []bench.Row) []bench.Figure {
	over, placed := overCommitted(rows, laxity)
	against, _ := overCommitted(rows, without)
	seconds := bench.Column(rows, "seconds", bench.Way(laxity))
	if len(seconds) == 0 {
		return nil
	}
	f := bench.Figure{Name: "placements_overcommitted", Value: float64(over), Unit: "placements", Runs: placed}
	if against > 0 {
		f.Against, f.Ratio = without, float64(over)/float64(against)
	}
	return []bench.Figure{
		f,
		{Name: "placements_p50_ms", Value: 1000 * bench.Median(seconds), Unit: "ms", Runs: len(seconds)},
		{Name: "placements_p99_ms", Value: 1000 * bench.P99(seconds), Unit: "ms", Runs: len(seconds)},
	}
}

func placementTable(rows []bench.Row) [][]string {
	lines := [][]string{{"WAY", "ASKED", "PLACED", "NO ROOM", "OVER-COMMITTED", "MEDIAN", "P99"}}
	for _, way := range []string{laxity, without} {
		seconds := bench.Column(rows, "seconds", bench.Way(way))
		over, placed := overCommitted(rows, way)
		ms := func(v float64) string {
			if math.IsNaN(v) {
				return "-"
			}
			return bench.Number(1000*v) + " ms"
		}
		lines = append(lines, []string{way, fmt.Sprint(len(seconds)), fmt.Sprint(placed), fmt.Sprint(len(seconds) - placed), fmt.Sprint(over), ms(bench.Median(seconds)), ms(bench.P99(seconds))})
	}
	return lines
}
