package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/daemon"
	"github.com/laxity/laxity/rules"
)

// Both are as in compose/: what is measured is what is shipped.
const (
	prometheusConfig = `global: {scrape_interval: 100ms, scrape_timeout: 100ms, evaluation_interval: 100ms}
rule_files: [recording.yml, alerts.yml]
alerting: {alertmanagers: [{static_configs: [{targets: ['%s']}]}]}
scrape_configs:
  - job_name: laxity-exporter
    static_configs: [{targets: ['%s'], labels: {node: local}}]
`
	alertmanagerConfig = `route: {receiver: actuator, group_by: ['...'], group_wait: 0s, group_interval: 10ms, repeat_interval: 1m}
receivers:
  - name: actuator
    webhook_configs: [{url: 'http://%s/api/v1/alerts', send_resolved: true, max_alerts: 0}]
`
)

// stack is the programs of one node.
type stack struct {
	dir     string
	daemons []*daemon.Process
	// addresses
	exporter, actuator, prometheus, alertmanager string
}

// start runs a daemon; close ends it.
func (s *stack) start(ctx context.Context, address, program string, args ...string) error {
	d, err := daemon.Start(ctx, s.dir, address, program, args...)
	if err == nil {
		s.daemons = append(s.daemons, d)
	}
	return err
}

// reserve finds the addresses.
func (s *stack) reserve(ctx context.Context) error {
	addresses, err := daemon.FreeAddresses(ctx, 4)
	if err == nil {
		s.exporter, s.actuator, s.prometheus, s.alertmanager = addresses[0], addresses[1], addresses[2], addresses[3]
	}
	return err
}

// laxity starts exporter and actuator, this one with some flags of its own.
func (s *stack) laxity(ctx context.Context, gpu *bench.GPU, label string, flags ...string) error {
	exporter, err := daemon.Program("laxity-exporter")
	if err != nil {
		return err
	}
	actuator, err := daemon.Program("laxity-actuator")
	if err != nil {
		return err
	}
	if err := s.start(ctx, s.exporter, exporter, "--node=local", "--device="+gpu.Device,
		"--state-dir="+filepath.Join(s.dir, "exporter"), "--web.listen-address="+s.exporter); err != nil {
		return err
	}
	return s.start(ctx, s.actuator, actuator, append([]string{"serve", "--node=local", "--exporter=http://" + s.exporter, "--containers.label=" + label,
		"--state-dir=" + s.stateDir(), "--lock-dir=" + filepath.Join(s.dir, "lock"), "--web.listen-address=" + s.actuator}, flags...)...)
}

// stateDir is the actuator's.
func (s *stack) stateDir() string { return filepath.Join(s.dir, "actuator") }

// guardian starts one that does not end with the actuator.
func (s *stack) guardian(ctx context.Context, gpu *bench.GPU) error {
	program, err := daemon.Program("laxity-actuator")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.stateDir(), 0o700); err != nil {
		return err
	}
	d, err := daemon.Begin(ctx, s.dir, program, "guardian", "--state-dir="+s.stateDir(), "--device="+gpu.Device)
	if err != nil {
		return err
	}
	s.daemons = append(s.daemons, d)
	return d.Await(ctx, func() bool { return journal.Taken(journal.GuardianLock(s.stateDir())) })
}

// monitoring starts a stock Prometheus and Alertmanager.
func (s *stack) monitoring(ctx context.Context) error {
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		return errors.New("no program `prometheus` here: install Prometheus, 2.42 or later")
	}
	alertmanager, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		if alertmanager, err = exec.LookPath("alertmanager"); err != nil {
			return errors.New("no program `alertmanager` here: install Alertmanager, 0.25 or later")
		}
	}
	files := map[string]string{
		"prometheus.yml":   fmt.Sprintf(prometheusConfig, s.alertmanager, s.exporter),
		"alertmanager.yml": fmt.Sprintf(alertmanagerConfig, s.actuator),
	}
	for _, name := range []string{"recording.yml", "alerts.yml"} {
		text, err := rules.FS.ReadFile(name)
		if err != nil {
			return err
		}
		files[name] = string(text)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := s.start(ctx, s.alertmanager, alertmanager, "--config.file="+filepath.Join(s.dir, "alertmanager.yml"),
		"--web.listen-address="+s.alertmanager, "--cluster.listen-address=", "--storage.path="+filepath.Join(s.dir, "am")); err != nil {
		return err
	}
	return s.start(ctx, s.prometheus, prometheus, "--config.file="+filepath.Join(s.dir, "prometheus.yml"),
		"--web.listen-address="+s.prometheus, "--storage.tsdb.path="+filepath.Join(s.dir, "tsdb"))
}

func (s *stack) close() error {
	var errs []error
	for i := len(s.daemons) - 1; i >= 0; i-- {
		errs = append(errs, s.daemons[i].Stop())
	}
	return errors.Join(errs...)
}

// until waits until the actuator's state is as wanted.
func (s *stack) until(ctx context.Context, what string, wanted func(state.State) bool) error {
	const limit = time.Minute
	var last string
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		state, err := s.state(ctx)
		if err == nil && wanted(state) {
			return nil
		}
		last = describe(state, err)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("not within %v: %s; at last %s", limit, what, last)
}

func describe(s state.State, err error) string {
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%d leases", len(s.Leases))
	for _, g := range s.GPUs {
		text += fmt.Sprintf(", %d tasks on a GPU", g.Tasks)
	}
	for _, c := range s.Containers {
		text += fmt.Sprintf(", %s (%d tasks) %s", c.Name, c.Tasks, c.Standing)
	}
	return text
}

func (s *stack) state(ctx context.Context) (state state.State, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.actuator+"/api/v1/state", nil)
	if err != nil {
		return state, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return state, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&state)
	return state, err
}
