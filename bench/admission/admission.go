// Package admission measures what it is worth to ask before a container with a deadline starts: servers whose
// requests have deadlines of 20 to 100 ms come to a GPU one after another, in virtual time.
package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laxity/laxity/bench"
)

const about = `Virtual time, simulated GPU (round robin, 0.4 ms a switch), the actuator's own core and plan. Servers with deadlines
of 20–100 ms and requests of 1–8 ms come one after another to a GPU on which a container of class batch always computes;
requests come like frames (each 0.95–1.05 of a period) or from clients (at random, Poisson), and wait for earlier requests of their
server. Before, each server was seen alone for 32 busy intervals. Load is the GPU time of all offered requests, without
switches. Ways: default = time slicing of the driver, all run; laxity, all run = Laxity's slices, all run, and deadlines that cannot be promised are
reported; laxity, --require=known = containers that laxity run --require=known refuses do not start. Ways are compared by the requests in time
of all that are offered: a refused request is not in time. 100,000 requests are offered at each load and way.`

// Experiment is the simulated admission of servers.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "admission", Title: "Admission: requests in time when containers whose deadline cannot be promised do not start", About: about,
		Run: run, Figures: figures, Table: table,
	}
}

// The ways.
const (
	byDefault = "default"
	allRun    = "laxity, all run"
	require   = "laxity, --require=known"
)

var (
	loads    = []float64{0.5, 0.8, 0.95}
	arrivals = []string{"frames", "clients"}
	ways     = []string{byDefault, allRun, require}
)

// each is how many servers come to one GPU, and lasts for how long.
const (
	each  = 12
	lasts = 20 * time.Second
)

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	offered := 100_000
	if env.Quick {
		offered = 10_000
	}
	var rows []bench.Row
	for _, arrival := range arrivals {
		for _, load := range loads {
			for done, i := 0, 0; done < offered; i++ {
				if err := ctx.Err(); err != nil {
					return rows, err
				}
				more, err := world(arrival, load, i, env.Seed+uint64(i)<<8) //nolint:gosec // not negative
				if err != nil {
					return rows, err
				}
				rows = append(rows, more...)
				done += int(more[0].Num("offered"))
			}
			env.Log("%s at load %v", arrival, load)
		}
	}
	return rows, nil
}

// world is one GPU in all ways. The same requests come in each of them.
func world(arrival string, load float64, number int, seed uint64) ([]bench.Row, error) {
	all := draw(rand.New(rand.NewPCG(seed, uint64(1000*load))), each, load, arrival == "clients") //nolint:gosec // not a secret
	everybody := make([]bool, each)
	told, late := make([]bool, each), 0
	j := newJudge(all, seed)
	for i, s := range all {
		everybody[i] = true
		first, later := j.start(i, s)
		told[i] = first
		if later {
			late++
		}
	}
	admitted := make([]bool, each)
	j = newJudge(all, seed)
	toldAdmitted := 0
	for i, s := range all {
		may, err := j.ask(i, s)
		if err != nil {
			return nil, err
		}
		if admitted[i] = may; may {
			if first, later := j.start(i, s); first || later {
				toldAdmitted++
			}
		}
	}
	byDriver, offered := simulate(all, everybody, false, seed, lasts), 0
	for _, c := range byDriver {
		offered += c.requests
	}
	row := func(way string, in []bool, counts []count) bench.Row {
		r := bench.Row{"way": way, "arrivals": arrival, "load": load, "run": number + 1, "offered": offered, "servers": each, "refused_servers": 0,
			"requests": 0, "in_time": 0, "told": 0, "told_requests": 0, "told_in_time": 0, "told_later": 0}
		n := func(key string, more int) { r[key] = int(r.Num(key)) + more }
		for i, c := range counts {
			switch {
			case way == allRun && told[i]:
				n("told", 1)
				n("told_requests", c.requests)
				n("told_in_time", c.inTime)
			case in[i]:
				n("requests", c.requests)
				n("in_time", c.inTime)
			default:
				n("refused_servers", 1)
			}
		}
		return r
	}
	rows := []bench.Row{
		row(byDefault, everybody, byDriver),
		row(allRun, everybody, simulate(all, everybody, true, seed, lasts)),
		row(require, admitted, simulate(all, admitted, true, seed, lasts)),
	}
	rows[1]["told_later"], rows[2]["told_later"] = late, toldAdmitted
	return rows, nil
}

// sums are those of all worlds.
type sums struct {
	worlds, offered, requests, inTime, servers, refused, told, toldLater, toldRequests, toldInTime float64
}

func sum(rows []bench.Row, arrival string, load float64, way string) (s sums) {
	for _, r := range rows {
		if r.Str("arrivals") != arrival || r.Num("load") != load || r.Str("way") != way {
			continue
		}
		s.worlds++
		s.offered += r.Num("offered")
		s.requests += r.Num("requests")
		s.inTime += r.Num("in_time")
		s.servers += r.Num("servers")
		s.refused += r.Num("refused_servers")
		s.told += r.Num("told")
		s.toldLater += r.Num("told_later")
		s.toldRequests += r.Num("told_requests")
		s.toldInTime += r.Num("told_in_time")
	}
	return s
}

// goodput is the part of all offered requests that was answered in time.
func (s sums) goodput() float64 { return (s.inTime + s.toldInTime) / s.offered }

// refusedRequests is the part of them whose server did not start.
func (s sums) refusedRequests() float64 { return 1 - (s.requests+s.toldRequests)/s.offered }

const byDefaultAll = "default time slicing, all run"

func figures(rows []bench.Row) []bench.Figure {
	var out []bench.Figure
	for _, arrival := range arrivals {
		for _, load := range loads {
			base, all, req := sum(rows, arrival, load, byDefault), sum(rows, arrival, load, allRun), sum(rows, arrival, load, require)
			at := fmt.Sprintf("%s, load %v", arrival, load)
			n := int(req.requests)
			out = append(out,
				bench.Figure{Name: "admitted_in_time: " + at, Value: req.inTime / req.requests, Runs: n},
				bench.Figure{Name: "admitted_missed: " + at, Value: req.requests - req.inTime, Unit: "requests", Runs: n},
				bench.Figure{Name: "offered_in_time: " + at, Value: req.goodput(), Runs: int(req.offered), Against: byDefaultAll, Ratio: req.goodput() / base.goodput()},
				bench.Figure{Name: "refused_requests: " + at, Value: req.refusedRequests(), Runs: int(req.offered)},
				bench.Figure{Name: "refused_servers: " + at, Value: req.refused / req.servers, Runs: int(req.servers)},
				bench.Figure{Name: "all_run_in_time: " + at, Value: all.goodput(), Runs: int(all.offered), Against: byDefaultAll, Ratio: all.goodput() / base.goodput()},
				bench.Figure{Name: "told_after_the_first_snapshot: " + at, Value: all.toldLater + req.toldLater, Unit: "servers", Runs: int(all.servers + req.servers)},
			)
		}
	}
	return out
}

func table(rows []bench.Row) [][]string {
	lines := [][]string{{"REQUESTS", "LOAD", "WAY", "OFFERED", "SERVERS REFUSED OR TOLD", "REQUESTS THAT RAN, OTHERS'", "IN TIME", "OF THOSE TOLD, IN TIME", "OF ALL OFFERED, REFUSED", "OF ALL OFFERED, IN TIME"}}
	part := func(n, of float64) string {
		if of == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f %%", 100*n/of)
	}
	for _, arrival := range arrivals {
		for _, load := range loads {
			for _, way := range ways {
				s := sum(rows, arrival, load, way)
				if s.worlds == 0 {
					continue
				}
				lines = append(lines, []string{arrival, fmt.Sprint(load), way, fmt.Sprintf("%.0f", s.offered),
					fmt.Sprintf("%.0f of %.0f", s.refused+s.told, s.servers), fmt.Sprintf("%.0f", s.requests), part(s.inTime, s.requests), part(s.toldInTime, s.toldRequests),
					part(s.refusedRequests(), 1), part(s.goodput(), 1)})
			}
		}
	}
	return lines
}
