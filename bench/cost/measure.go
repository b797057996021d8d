package cost

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/daemon"
)

// process is the exporter under measurement.
type process struct {
	*daemon.Process
	base string // URL
}

func startExporter(ctx context.Context, gpu *bench.GPU, state string, flags ...string) (*process, error) {
	program, err := daemon.Program("laxity-exporter")
	if err != nil {
		return nil, err
	}
	free, err := daemon.FreeAddresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	d, err := daemon.Start(ctx, "", free[0], program, append([]string{"--device=" + gpu.Device, "--state-dir=" + state, "--web.listen-address=" + free[0]}, flags...)...)
	if err != nil {
		return nil, err
	}
	return &process{d, "http://" + free[0]}, nil
}

// awaitLimit is how long it may take until the exporter sees the tasks of containers
// that have all been started.
const awaitLimit = time.Minute

// await waits until the exporter sees so many running tasks.
func (p *process) await(ctx context.Context, tasks int) error {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	for seen := 0; ; {
		s, err := p.snapshot(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %d tasks, of which the exporter saw %d at last: %w", tasks, seen, err)
		}
		if seen = len(s.Tasks); seen >= tasks {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *process) snapshot(ctx context.Context) (s task.Snapshot, err error) {
	resp, err := p.get(ctx, "/api/v1/tasks")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s, err
}

// quiet keeps this program from collecting its garbage until done is called: a pause of
// the reader is no part of a scrape.
func quiet() (done func()) {
	runtime.GC()
	limit := debug.SetMemoryLimit(1 << 30) // it collects beyond
	percent := debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// measure lets the exporter work, scraped at this interval, and reads what that
// took.
func (p *process) measure(ctx context.Context, interval, every time.Duration) ([]bench.Row, error) {
	defer quiet()()
	var rows []bench.Row
	var first, body bytes.Buffer
	if err := p.scrape(ctx, &first); err != nil {
		return nil, err
	}
	before, err := bench.ReadUsage(p.PID)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	scrapes := time.NewTicker(every)
	defer scrapes.Stop()
	for time.Since(began) < interval {
		select {
		case <-scrapes.C:
		case <-ctx.Done():
			return rows, ctx.Err()
		}
		start := time.Now()
		if err := p.scrape(ctx, &body); err != nil {
			return rows, err
		}
		rows = append(rows, bench.Row{"way": laxity, "kind": "scrape", "scrape_ms": 1000 * time.Since(start).Seconds()})
	}
	wall := time.Since(began)
	after, err := bench.ReadUsage(p.PID)
	if err != nil {
		return rows, err
	}
	last := body.Bytes()
	cpu := "cpu_percent"
	if every < time.Second {
		cpu += often
	}
	row := bench.Row{"way": laxity, "kind": "process", "scrape_every_s": every.Seconds(),
		"cpu_seconds": (after.CPU - before.CPU).Seconds(), cpu: 100 * (after.CPU - before.CPU).Seconds() / wall.Seconds(), "rss_anon_mib": after.RSSAnon / (1 << 20),
		"series": float64(bench.Series(last)), "wall_s": wall.Seconds()}
	if mean := meanPass(first.Bytes(), last); !math.IsNaN(mean) { // a row stores no NaN
		row["pass_mean_ms"] = 1000 * mean
	}
	return append(rows, row), nil
}

// meanPass is the mean duration of the exporter's passes between two scrapes, seconds; NaN without a pass.
func meanPass(before, after []byte) float64 {
	const duration = "laxity_exporter_poll_duration_seconds"
	more := func(name string) float64 { return metric(after, name) - metric(before, name) }
	return more(duration+"_sum") / more(duration+"_count")
}

func (p *process) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// scrape returns when the last byte of the answer is in body, in the place of what was
// there.
func (p *process) scrape(ctx context.Context, body *bytes.Buffer) error {
	resp, err := p.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body.Reset()
	_, err = body.ReadFrom(resp.Body)
	return err
}

// metric adds up the samples of one name.
func metric(text []byte, name string) float64 {
	sum := 0.0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok && (rest[0] == ' ' || rest[0] == '{') {
			var v float64
			if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err == nil {
				sum += v
			}
		}
	}
	return sum
}

// measurePapers lets the papers' monitor work in a process of its own.
func measurePapers(ctx context.Context, gpu *bench.GPU, interval time.Duration) ([]bench.Row, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "papers-monitor", "--device="+gpu.Device, "--for="+interval.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the papers' monitor: %w", err)
	}
	var m struct {
		Passes  []float64 `json:"passes_seconds"`
		RSSAnon float64   `json:"rss_anon_bytes"`
		Wall    float64   `json:"wall_seconds"`
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("the papers' monitor: %w in %q", err, out)
	}
	// The process's own and its children's: nvidia-smi is most of it.
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	rows := []bench.Row{{"way": passes, "kind": "process", "cpu_percent": 100 * cpu.Seconds() / m.Wall,
		"rss_anon_mib": m.RSSAnon / (1 << 20), "wall_s": m.Wall}}
	for _, s := range m.Passes {
		rows = append(rows, bench.Row{"way": passes, "kind": "pass", "pass_ms": 1000 * s})
	}
	return rows, nil
}
