// Package long measures whether Laxity stays as it is over hours under load: memory, descriptors,
// goroutines, disk and latency.
package long

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/internal/daemon"
)

const about = `` + "`laxity up`" + ` as it is shipped (exporter, rules and actuator in one process, its guardian beside it) under
load: a server with a deadline for each request, a trainer of class batch and one with a share compute without end, while
containers of drawn length and labels come and go; a person pauses one of the three every 7 s, releases it after
2 s and changes the deadline of the server. Both pages of metrics and the state are read once a second. Every few seconds
it is read from /proc what each process holds, and from the folders what they hold. A run is cut into 24 parts, with the median of
each, as neighbouring samples say the same. The slope is Theil and Sen's, the median over all pairs of parts, with Sen's 95 %
interval. It is called flat if the interval holds 0 or less, or if even its upper end grows less in a day than the bound. What
grows levels off if the second half of the run is flat, and grows for certain less than the whole. The samples of the rules, which
are kept for 80 minutes, fill the first hour after a warm-up of 20 minutes: each 10 minutes of them are two open files, and pages
that the kernel can drop. The log of decisions grows up to 16 MiB. The warm-up is not in the rows. Latencies: quartiles of the
first and the last quarter.`

// Experiment is the endurance of Laxity.
func Experiment() bench.Experiment {
	e := lasting("long", 2*time.Hour, 20*time.Minute)
	e.Title, e.About = "Hours under load: memory, descriptors, disk and latency over time", about
	return e
}

// OnGPU is as much of it as GPU time is lent for.
func OnGPU() bench.Experiment {
	e := lasting("long-gpu", 20*time.Minute, 5*time.Minute)
	e.Title, e.About = "The same for 20 minutes, on a GPU", about+gpu
	return e
}

const gpu = `
The warm-up of 5 minutes is shorter than the 15 minutes for which series of ended containers stay: they fill the first half.`

// lasting is the experiment over these times, if no settings name others.
func lasting(name string, length, warmup time.Duration) bench.Experiment {
	return bench.Experiment{
		Name: name, Portions: true,
		Settings: []bench.Setting{
			{Name: "for", Means: fmt.Sprintf("how long it is measured, after the warm-up; %.0fm", length.Minutes()), Part: true},
			{Name: "warmup", Means: fmt.Sprintf("how long it runs before; %.0fm; series of ended containers stay for 15m", warmup.Minutes())},
			{Name: "every", Means: "time between samples of the processes; 10s"},
			{Name: "churn", Means: "least time between starts of containers; 3s"},
		},
		Run: func(ctx context.Context, env bench.Env) ([]bench.Row, error) {
			s, err := settings(env, length, warmup)
			if err != nil {
				return nil, err
			}
			return run(ctx, env, s)
		},
		Figures: figures, Table: table,
	}
}

// lengths are the settings.
type lengths struct{ length, warmup, every, churn time.Duration }

func settings(env bench.Env, length, warmup time.Duration) (s lengths, err error) {
	defaults := []time.Duration{length, warmup, 10 * time.Second, 3 * time.Second}
	if env.Quick {
		defaults = []time.Duration{20 * time.Second, 5 * time.Second, time.Second, time.Second}
	}
	var errs []error
	for i, to := range []*time.Duration{&s.length, &s.warmup, &s.every, &s.churn} {
		*to, err = env.Duration([]string{"for", "warmup", "every", "churn"}[i], defaults[i])
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

func run(ctx context.Context, env bench.Env, s lengths) (rows []bench.Row, err error) {
	r, err := rig.Open(ctx, env, "long", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	up, err := r.UpCommand(ctx, env, "long")
	if err != nil {
		return nil, err
	}
	// It ends by Stop, not with ctx: when the run is cut off, the load ends first.
	d, err := daemon.Start(context.WithoutCancel(ctx), up.Dir, up.Address, up.Program, up.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()

	m := &measurement{env: env, up: up, process: d, run: env.FirstRun(), client: http.Client{Timeout: 10 * time.Second}}
	l := &load{rig: r, up: up, random: rand.New(rand.NewPCG(env.Seed, uint64(m.run))), churn: s.churn, add: m.add} //nolint:gosec // not a secret
	if err := l.resident(ctx); err != nil {
		return nil, err
	}
	loaded, unload := context.WithCancel(ctx)
	var ends sync.WaitGroup
	defer ends.Wait()
	defer unload()
	ends.Go(func() { l.come(loaded) })
	ends.Go(func() { l.persons(loaded) })
	env.Log("warm-up of %v, then %v", s.warmup, s.length)
	if err := bench.Pass(ctx, s.warmup); err != nil {
		return nil, err
	}
	err = m.measure(ctx, s)
	return m.taken(), err
}

// measurement keeps the rows of one run.
type measurement struct {
	env     bench.Env
	up      rig.Command
	process *daemon.Process
	run     int
	client  http.Client

	mu    sync.Mutex
	began time.Time // zero in the warm-up
	rows  []bench.Row

	last metrics // the actuator's, of the last sample
}

// add notes a row; none of the warm-up.
func (m *measurement) add(r bench.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.IsZero() {
		return
	}
	now := time.Now()
	r["run"], r["time"], r["t"] = m.run, float64(now.UnixMilli())/1e3, now.Sub(m.began).Seconds()
	m.rows = append(m.rows, r)
}

func (m *measurement) taken() []bench.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows
}

// pages are read once a second: the latency's name, and the address's.
func (m *measurement) pages() [][2]string {
	return [][2]string{
		{"exporter's metrics", "http://" + m.up.Exporter + "/metrics"},
		{"actuator's metrics", "http://" + m.up.Address + "/metrics"},
		{"actuator's state", "http://" + m.up.Address + "/api/v1/state"},
	}
}

// measure scrapes and samples until the time is over, ctx ends or Laxity does.
func (m *measurement) measure(ctx context.Context, s lengths) error {
	m.mu.Lock()
	m.began = time.Now()
	m.mu.Unlock()
	scrapes, told := time.NewTicker(time.Second), time.Now()
	defer scrapes.Stop()
	for next := time.Now(); time.Since(m.began) < s.length; {
		select {
		case <-scrapes.C:
		case <-m.process.Ended():
			return fmt.Errorf("laxity up ended after %v: %s", time.Since(m.began), m.process.Said())
		case <-ctx.Done():
			return ctx.Err()
		}
		bodies := map[string][]byte{}
		for _, p := range m.pages() {
			body, err := m.read(ctx, p[0], p[1])
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				m.add(bench.Row{"kind": "scrape", "of": p[0], "failed": true, "error": err.Error()})
			}
			bodies[p[0]] = body
		}
		if time.Now().Before(next) {
			continue
		}
		next = next.Add(s.every)
		if err := m.sample(bodies["exporter's metrics"], bodies["actuator's metrics"]); err != nil {
			return err
		}
		if time.Since(told) > 5*time.Minute {
			told = time.Now()
			m.env.Log("%v of %v", time.Since(m.began).Round(time.Second), s.length)
		}
	}
	return nil
}

// read reads a page and notes how long that took.
func (m *measurement) read(ctx context.Context, of, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", of, resp.Status)
	}
	m.add(bench.Row{"kind": "latency", "of": of, "ms": 1000 * time.Since(began).Seconds()})
	return body.Bytes(), nil
}

// durations are the histograms whose mean over each sample is a latency.
var durations = map[string]string{
	"decision": "laxity_actuator_decision_duration_seconds",
	"action":   "laxity_actuator_action_duration_seconds",
}

// sample notes what processes and folders hold now. exporter and actuator are their pages of metrics;
// empty: they did not answer.
func (m *measurement) sample(exporter, actuator []byte) error {
	pids, others := family(m.process.PID)
	for name, pid := range pids {
		row, err := processRow(name, pid)
		if err != nil {
			if name == upProcess {
				return err
			}
			continue // a guardian that just ended: the next sample has another one
		}
		if name == upProcess {
			row["children"] = float64(others)
			if page := readMetrics(exporter); page["series"] > 0 {
				row["series_exporter"] = page["series"]
				row["heap_mib"], row["goroutines"] = page["go_memstats_heap_alloc_bytes"]/(1<<20), page["go_goroutines"]
			}
			if page := readMetrics(actuator); page["series"] > 0 {
				row["series_actuator"] = page["series"]
				m.latencies(page)
			}
		}
		m.add(row)
	}
	for _, row := range folderRows(filepath.Join(m.up.Dir, "state"), kindOfState, "decisions", "samples", "state") {
		m.add(row)
	}
	for _, row := range folderRows(filepath.Join(m.up.Dir, "lock"), func(string) string { return "run" }, "run") {
		m.add(row)
	}
	return nil
}

// latencies notes the mean of what histograms counted since the last sample.
func (m *measurement) latencies(page metrics) {
	if before := m.last; before != nil {
		for of, name := range durations {
			if n := page[name+"_count"] - before[name+"_count"]; n > 0 {
				m.add(bench.Row{"kind": "latency", "of": of, "ms": 1000 * (page[name+"_sum"] - before[name+"_sum"]) / n, "n": n})
			}
		}
	}
	m.last = page
}
