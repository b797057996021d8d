package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/daemon"
	"github.com/laxity/laxity/internal/freezer"
)

// patience is how long anything may take before it counts as not happening.
const patience = 30 * time.Second

// machine is one node with its programs and containers.
type machine struct {
	*rig.Rig
	random *rand.Rand
	log    func(format string, args ...any)

	uuid     string
	docker   *client.Client
	exporter *daemon.Process
	actuator *daemon.Process // nil: none runs
	sees     string          // the exporter's address
	acts     string          // the actuator's
	journal  *journal.Journal

	workers []*tenant.Tenant // nobody but Laxity pauses them
	persons *persons         // nil: no person has a wish here
}

func (m *machine) stateDir() string { return filepath.Join(m.Dir, "actuator") }

// newMachine is one on the engine that env names; close when it is not needed.
func newMachine(ctx context.Context, env bench.Env) (*machine, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if env.DockerHost != "" {
		opts = append(opts, client.WithHost(env.DockerHost))
	}
	engine, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, err
	}
	opened, err := rig.Open(ctx, env, "faults", 1)
	if err != nil {
		return nil, err
	}
	return &machine{Rig: opened, random: rand.New(rand.NewPCG(env.Seed, 0)), docker: engine, log: env.Log}, nil //nolint:gosec // not a secret
}

// open begins with the workers; restarts: the engine starts them again.
func (m *machine) open(ctx context.Context, restarts bool) (err error) {
	if m.journal, err = journal.Open(m.stateDir()); err != nil {
		return err
	}
	program, err := daemon.Program("laxity-exporter")
	if err != nil {
		return err
	}
	addresses, err := daemon.FreeAddresses(ctx, 2)
	if err != nil {
		return err
	}
	m.sees, m.acts = addresses[0], addresses[1]
	if m.exporter, err = daemon.Start(ctx, m.Dir, m.sees, program, "--node=local", "--device="+m.GPU.Device, "--docker.host="+m.docker.DaemonHost(),
		"--state-dir="+filepath.Join(m.Dir, "exporter"), "--web.listen-address="+m.sees); err != nil {
		return err
	}
	for i := range 3 {
		t, err := m.tenant(ctx, "worker-"+strconv.Itoa(i), restarts)
		if err != nil {
			return err
		}
		m.workers = append(m.workers, t)
	}
	return nil
}

// tenant starts a container that computes without end and waits for its task.
func (m *machine) tenant(ctx context.Context, suffix string, restarts bool) (*tenant.Tenant, error) {
	t, err := m.Tenants.Start(ctx, tenant.Spec{
		Name: "laxity-bench-" + m.Name + "-" + suffix, Labels: map[string]string{task.LabelDeadline: "1h"},
		Args: []string{"--n", strconv.Itoa(m.GPU.N(4096)), "--kernels", "100000"}, Restarts: restarts,
	})
	if err != nil {
		return nil, err
	}
	return t, m.until(ctx, suffix+" has a task", func() bool {
		var s task.Snapshot
		if m.get(ctx, m.sees, "/api/v1/tasks", &s) != nil {
			return false
		}
		for _, x := range s.Tasks {
			if x.ContainerID == t.ID && len(x.GPUs) == 1 && x.GPUs[0] != task.UnknownGPU {
				m.uuid = x.GPUs[0]
				return true
			}
		}
		return false
	})
}

// start runs the actuator; its guardian comes with it.
func (m *machine) start(ctx context.Context, lease time.Duration) error {
	program, err := daemon.Program("laxity-actuator")
	if err != nil {
		return err
	}
	m.actuator, err = daemon.Start(ctx, m.Dir, m.acts, program, m.flags(lease)...)
	return err
}

// begin does not wait until it has come up.
func (m *machine) begin(ctx context.Context, lease time.Duration) error {
	program, err := daemon.Program("laxity-actuator")
	if err != nil {
		return err
	}
	m.actuator, err = daemon.Begin(ctx, m.Dir, program, m.flags(lease)...)
	return err
}

func (m *machine) flags(lease time.Duration) []string {
	return []string{"serve", "--node=local", "--docker.host=" + m.docker.DaemonHost(), "--exporter=http://" + m.sees,
		"--policy=fifo", "--share=one", "--hold=pause", "--memory-guard=off", "--swap=off", "--log.level=warn", "--lease=" + lease.String(),
		"--containers.label=" + tenant.Label + "=" + m.Name,
		"--state-dir=" + m.stateDir(), "--lock-dir=" + filepath.Join(m.Dir, "lock"), "--web.listen-address=" + m.acts}
}

func (m *machine) stop() error {
	d := m.actuator
	m.actuator = nil
	return d.Stop()
}

// slay kills the actuator and returns how long it took until its guardian had ended.
func (m *machine) slay(ctx context.Context) (held int, took time.Duration, err error) {
	began := time.Now()
	held = m.held()
	if err := m.murder(); err != nil {
		return held, 0, err
	}
	err = m.until(ctx, "the guardian has ended", func() bool { return !journal.Taken(journal.GuardianLock(m.stateDir())) })
	return held, time.Since(began), err
}

// murder kills the actuator.
func (m *machine) murder() error {
	if err := syscall.Kill(m.actuator.PID, syscall.SIGKILL); err != nil {
		return err
	}
	return m.stop()
}

func (m *machine) held() int {
	holds, err := m.journal.List()
	if err != nil {
		return -1
	}
	return len(holds)
}

// paused: the engine says so, or the kernel, where the engine has lost track.
func (m *machine) paused(ctx context.Context, t *tenant.Tenant) bool {
	byEngine, byKernel := m.pausedBy(ctx, t)
	return byEngine || byKernel
}

func (m *machine) pausedBy(ctx context.Context, t *tenant.Tenant) (engine, kernel bool) {
	c, err := m.docker.ContainerInspect(ctx, t.ID)
	if err != nil {
		return false, false
	}
	frozen, err := freezer.Kernel{Proc: "/proc"}.Frozen(c.State.Pid)
	return c.State.Paused, err == nil && frozen
}

// stuck counts those whom nobody will release.
func (m *machine) stuck(ctx context.Context) (n int) {
	for _, t := range m.workers {
		if m.paused(ctx, t) {
			n++
		}
	}
	return max(n, m.held())
}

// explain logs who is stuck, and by whom.
func (m *machine) explain(ctx context.Context, way string, number int) {
	for _, t := range m.workers {
		if engine, kernel := m.pausedBy(ctx, t); engine || kernel {
			m.log("%s, %d: %s is stopped; by the engine: %t, by the kernel: %t; on record: %d", way, number, t.Name, engine, kernel, m.held())
		}
	}
}

// post sends an alert; accepted means that the actuator answered 200.
func (m *machine) post(ctx context.Context, a webhook.Alert) (accepted bool, err error) {
	body, err := json.Marshal(webhook.Message{Version: "4", Alerts: []webhook.Alert{a}})
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.acts+"/api/v1/alerts", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}

func (m *machine) state(ctx context.Context) (s state.State, err error) {
	return s, m.get(ctx, m.acts, "/api/v1/state", &s)
}

func (m *machine) get(ctx context.Context, address, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// errNever is that something did not happen within patience.
var errNever = errors.New("it never happened")

func (m *machine) until(ctx context.Context, what string, ok func() bool) error {
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %s", errNever, what)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// close stops and removes all; a person's pause is no obstacle.
func (m *machine) close() {
	if m.actuator != nil {
		_ = m.actuator.Stop()
	}
	if m.exporter != nil {
		_ = m.exporter.Stop()
	}
	_ = m.docker.Close()
	_ = m.Close() // what is left has a label
}
