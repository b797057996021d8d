package peers

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/daemon"
)

// seldomEvery is the scrape interval of the configuration that comes with Prometheus.
const seldomEvery = 15 * time.Second

//go:embed nvidia-smi.sh
var standIn []byte

// standIn writes the stand-in for nvidia-smi, which lists the containers' processes.
func (m *measurement) standIn(all []known) error {
	if !m.GPU.Simulated() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(m.smi()), 0o755); err != nil {
		return err
	}
	var apps strings.Builder
	for _, c := range all {
		fmt.Fprintf(&apps, "GPU-11111111-2222-3333-4444-555555555555, %d, /matmul, 512 MiB\n", c.pid)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(m.smi()), "apps"), []byte(apps.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(m.smi(), standIn, 0o700)
}

// arguments are those of a way's program.
func (m *measurement) arguments(way, address string) (program string, args []string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, err
	}
	program = m.how.programs[way]
	switch way {
	case laxity:
		program, err = daemon.Program("laxity-exporter")
		args = []string{"--device=" + m.GPU.Device, "--state-dir=" + filepath.Join(m.Dir, "state"), "--web.listen-address=" + address}
		if m.env.DockerHost != "" {
			args = append(args, "--docker.host="+m.env.DockerHost)
		}
		return program, args, err
	case cadvisor, cadvisorLeast:
		args = []string{"-listen_ip=" + host, "-port=" + port}
		if m.env.DockerHost != "" {
			args = append(args, "-docker="+m.env.DockerHost)
		}
		if way == cadvisorLeast {
			args = append(args, "-docker_only", "-store_container_labels=false", "-enable_metrics=cpu,memory")
		}
	default:
		args = []string{"--web.listen-address=" + address, "--collect.compute-apps"}
		if way == nvidiaNVML {
			args = append(args, "--collect.backend=nvml")
		} else if m.GPU.Simulated() {
			args = append(args, "--nvidia-smi-command="+m.smi())
		}
	}
	return program, args, nil
}

// measure starts a way's program, lets it settle, and reads what it takes at each scrape interval.
func (m *measurement) measure(ctx context.Context, way string, all []known) (rows []bench.Row, err error) {
	addresses, err := daemon.FreeAddresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	program, args, err := m.arguments(way, addresses[0])
	if err != nil {
		return nil, err
	}
	p, err := daemon.Begin(ctx, m.Dir, program, args...)
	if err != nil {
		return nil, err
	}
	// Whether it ends well is not measured.
	defer p.Stop() //nolint:errcheck // see above
	url := "http://" + addresses[0] + "/metrics"
	var page bytes.Buffer
	if err := p.Await(ctx, func() bool { return scrape(ctx, url, &page) == nil }); err != nil {
		return nil, err
	}
	if err := bench.Pass(ctx, m.how.settle); err != nil {
		return nil, err
	}
	for _, w := range []struct{ every, length time.Duration }{{time.Second, m.how.often}, {seldomEvery, m.how.seldom}} {
		row, err := observe(ctx, p.PID, url, &page, w.every, w.length)
		if err != nil {
			return nil, err
		}
		if err := tell(page.Bytes(), all, row); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// observe scrapes a program at an interval for so long, and reads what that took.
func observe(ctx context.Context, pid int, url string, page *bytes.Buffer, every, length time.Duration) (bench.Row, error) {
	before, err := bench.ReadUsage(pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	end := time.NewTimer(length)
	defer end.Stop()
	var took []float64
	for more := true; more; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-end.C:
			more = false
		case <-ticks.C:
			asked := time.Now()
			if err := scrape(ctx, url, page); err != nil {
				return nil, err
			}
			took = append(took, time.Since(asked).Seconds())
		}
	}
	wall := time.Since(began)
	after, err := bench.ReadUsage(pid)
	if err != nil {
		return nil, err
	}
	return bench.Row{
		"every_s": every.Seconds(), "wall_s": wall.Seconds(), "scrapes": len(took), "scrape_s": bench.Median(took),
		"cpu_s_per_min": (after.CPU - before.CPU).Seconds() / wall.Minutes(), "rss_mib": after.RSS / (1 << 20), "rss_anon_mib": after.RSSAnon / (1 << 20),
	}, nil
}

// scrape puts an answer into page, in the place of what was there.
func scrape(ctx context.Context, url string, page *bytes.Buffer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	page.Reset()
	_, err = page.ReadFrom(resp.Body)
	return err
}
