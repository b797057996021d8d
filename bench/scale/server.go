package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/daemon"
	"github.com/laxity/laxity/rules"
)

// nodesPerPage is how many nodes share one scrape, so that 10,000 nodes are 100
// targets.
const nodesPerPage = 100

func measureServer(ctx context.Context, env bench.Env, f *fleetOf) (rows []bench.Row, err error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, skipped("no program `prometheus` here: install Prometheus, 2.42 or later")
	}
	dir, err := os.MkdirTemp("", "laxity-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a temporary folder
	pages := pageServer{f: f}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	web := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(listener) //nolint:errcheck // it ends by Close
	defer web.Close()      // nothing is under way
	p, err := startServer(ctx, program, dir, listener.Addr().String(), f.sizing)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := p.ready(ctx, f.nodes); err != nil {
		return nil, err
	}
	env.Log("the rules know every node")
	rows, err = p.evaluations(ctx, f.evaluations, f.interval)
	if err != nil {
		return rows, err
	}
	spent, err := p.evaluationCPU(ctx, f.evaluations, f.interval)
	rows = append(rows, spent...)
	if err != nil {
		return rows, err
	}
	if err := p.ready(ctx, f.nodes); err != nil {
		return rows, err
	}
	used, err := bench.ReadUsage(p.PID)
	if err != nil {
		return rows, err
	}
	rows = append(rows, bench.Row{"kind": "memory", "bytes": used.RSSAnon})
	count, err := series(ctx, p.client)
	if err != nil {
		return rows, err
	}
	rows = append(rows, count)
	source := prometheus.NewSource(p.client)
	for _, measure := range []func() ([]bench.Row, error){
		func() ([]bench.Row, error) {
			return decisions(ctx, env, f.sizing, source, busy, p.PID, os.Getpid())
		},
		func() ([]bench.Row, error) {
			if err := p.rest(ctx); err != nil {
				return nil, err
			}
			return decisions(ctx, env, f.sizing, source, quiet, p.PID, os.Getpid())
		},
		func() ([]bench.Row, error) {
			return decisions(ctx, env, f.sizing, source, predictive, p.PID, os.Getpid())
		},
		func() ([]bench.Row, error) {
			return crowdedDecisions(ctx, env, f.sizing, source, func(ctx context.Context) error { return p.wake(ctx, f.sizing) })
		},
		func() ([]bench.Row, error) { return explanations(ctx, f.sizing, source) },
	} {
		more, err := measure()
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// pageServer answers scrapes: /page/K has the K-th hundred of nodes.
type pageServer struct{ f *fleetOf }

func (s pageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var page int
	if _, err := fmt.Sscanf(r.URL.Path, "/page/%d", &page); err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for i := page * nodesPerPage; i < min((page+1)*nodesPerPage, s.f.nodes); i++ {
		page, err := s.f.page(i)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if _, err := w.Write(page); err != nil {
			return
		}
	}
}

// promServer is a real Prometheus server.
type promServer struct {
	*daemon.Process
	url    string
	client *prometheus.Client
	write  func(interval time.Duration, rules bool) error // the configuration
}

func writeConfig(file, rules, target string, nodes int, interval time.Duration) error {
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [%[2]s]\nscrape_configs:\n",
		interval, filepath.Join(rules, "*.yml"))
	for page := range (nodes + nodesPerPage - 1) / nodesPerPage {
		fmt.Fprintf(&config, "- {job_name: page-%d, metrics_path: /page/%d, honor_labels: true, static_configs: [{targets: ['%s'], labels: {job: laxity-exporter}}]}\n",
			page, page, target)
	}
	return os.WriteFile(file, []byte(config.String()), 0o600)
}

// pace makes the server scrape by another interval, and evaluate the rules so or not at all.
func (p *promServer) pace(interval time.Duration, rules bool) error {
	return errors.Join(p.write(interval, rules), syscall.Kill(p.PID, syscall.SIGHUP))
}

// rest makes the server scrape and evaluate once an hour, and waits until it does
// nothing any more. What it knows of GPUs ends soon after two of its former intervals: then it marks
// what the former scrapes brought as stale.
func (p *promServer) rest(ctx context.Context) error {
	if err := p.pace(time.Hour, true); err != nil {
		return err
	}
	last, err := bench.ReadUsage(p.PID)
	if err != nil {
		return err
	}
	for range 60 {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := bench.ReadUsage(p.PID)
		if err != nil {
			return err
		}
		if now.CPU-last.CPU < 100*time.Millisecond {
			return nil
		}
		last = now
	}
	return errors.New("prometheus does not come to rest within a minute")
}

// wake makes the server scrape and evaluate again, and rest once it has: what it knows is new then.
func (p *promServer) wake(ctx context.Context, s sizing) error {
	if err := p.pace(s.interval, true); err != nil {
		return err
	}
	if _, err := p.evaluations(ctx, 1, s.interval); err != nil {
		return err
	}
	if err := p.ready(ctx, s.nodes); err != nil {
		return err
	}
	return p.rest(ctx)
}

func startServer(ctx context.Context, program, dir, target string, s sizing) (*promServer, error) {
	if err := os.CopyFS(filepath.Join(dir, "rules"), rules.FS); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "prometheus.yml")
	p := &promServer{write: func(interval time.Duration, with bool) error {
		folder := filepath.Join(dir, "rules")
		if !with {
			folder = filepath.Join(dir, "none")
		}
		return writeConfig(config, folder, target, s.nodes, interval)
	}}
	if err := p.write(s.interval, true); err != nil {
		return nil, err
	}
	free, err := daemon.FreeAddresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	p.url = "http://" + free[0]
	if p.client, err = prometheus.NewClient(p.url, nil); err != nil {
		return nil, err
	}
	p.Process, err = daemon.Start(ctx, dir, free[0], program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+free[0], "--log.level=warn")
	return p, err
}

// ready waits until the rules have ranked every node.
func (p *promServer) ready(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var known float64
	for {
		v, err := p.client.Query(ctx, "count(node:rank:score)", time.Time{})
		if err == nil && len(v) == 1 {
			if known = float64(v[0].Value); known == float64(nodes) {
				return nil
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-p.Ended():
			return fmt.Errorf("prometheus ended: %s", p.Said())
		case <-ctx.Done():
			return fmt.Errorf("%v of %d nodes are ranked: %w", known, nodes, errors.Join(ctx.Err(), err))
		}
	}
}

// evaluations waits for n evaluations of all rules and says how long each took.
func (p *promServer) evaluations(ctx context.Context, n int, interval time.Duration) ([]bench.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n+5)*4*interval)
	defer cancel()
	var rows []bench.Row
	last := ""
	for len(rows) < n {
		at, took, longest, err := p.ruleGroups(ctx)
		if err != nil {
			return rows, err
		}
		// The first one seen may have met half of the nodes.
		if last != "" && at != last {
			rows = append(rows, bench.Row{"kind": "evaluation", "seconds": took, "longest_seconds": longest})
		}
		last = at
		select {
		case <-time.After(interval / 5):
		case <-ctx.Done():
			return rows, fmt.Errorf("%d of %d evaluations seen: %w", len(rows), n, ctx.Err())
		}
	}
	return rows, nil
}

// ruleGroups returns when the first group was last evaluated, and how many
// seconds the last evaluation of all groups took together, and the longest of them.
func (p *promServer) ruleGroups(ctx context.Context) (at string, took, longest float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/rules?type=record", nil)
	if err != nil {
		return "", 0, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, 0, err
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Groups []struct {
				LastEvaluation string  `json:"lastEvaluation"`
				EvaluationTime float64 `json:"evaluationTime"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", 0, 0, err
	}
	for _, g := range answer.Data.Groups {
		at = max(at, g.LastEvaluation)
		took, longest = took+g.EvaluationTime, max(longest, g.EvaluationTime)
	}
	return at, took, longest, nil
}

// evaluationCPU is the processor time of one evaluation of all rules: what the server uses in a
// few intervals with them, less what it uses without, when it only scrapes.
func (p *promServer) evaluationCPU(ctx context.Context, n int, interval time.Duration) ([]bench.Row, error) {
	var used [2]time.Duration
	for i, with := range []bool{true, false} {
		if err := p.pace(interval, with); err != nil {
			return nil, err
		}
		// It spreads the first evaluations and scrapes over an interval.
		if err := bench.Pass(ctx, 2*interval); err != nil {
			return nil, err
		}
		before, err := bench.ReadUsage(p.PID)
		if err != nil {
			return nil, err
		}
		if err := bench.Pass(ctx, time.Duration(n)*interval); err != nil {
			return nil, err
		}
		after, err := bench.ReadUsage(p.PID)
		if err != nil {
			return nil, err
		}
		used[i] = after.CPU - before.CPU
	}
	return []bench.Row{{"kind": "evaluation CPU", "seconds": (used[0] - used[1]).Seconds() / float64(n)},
		{"kind": "scrape CPU", "seconds": used[1].Seconds() / float64(n)}}, p.pace(interval, true)
}
