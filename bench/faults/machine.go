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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/daemon"
)

// patience is how long anything may take before it counts as not happening.
const patience = 30 * time.Second

// machine is one node with its programs and containers.
type machine struct {
	*rig.Rig
	random *rand.Rand

	uuid     string
	docker   *client.Client
	exporter *daemon.Process
	actuator *daemon.Process // nil: none runs
	sees     string          // the exporter's address
	acts     string          // the actuator's
	journal  *journal.Journal

	workers []*tenant.Tenant // nobody but Laxity pauses them
	theirs  *tenant.Tenant   // paused by a person
	freed   *tenant.Tenant   // unpaused by a person

	unpaused, repaused atomic.Int64          // how often these two were wronged
	blind              atomic.Pointer[error] // why that is not known any more
}

func (m *machine) stateDir() string { return filepath.Join(m.Dir, "actuator") }

func (m *machine) open(ctx context.Context) (err error) {
	if m.docker, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err != nil {
		return err
	}
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
	if m.exporter, err = daemon.Start(ctx, m.Dir, m.sees, program, "--node=local", "--device="+m.GPU.Device,
		"--state-dir="+filepath.Join(m.Dir, "exporter"), "--web.listen-address="+m.sees); err != nil {
		return err
	}
	for i := range 3 {
		t, err := m.tenant(ctx, "worker-"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		m.workers = append(m.workers, t)
	}
	return m.people(ctx)
}

// tenant starts a container that computes without end and waits for its task.
func (m *machine) tenant(ctx context.Context, suffix string) (*tenant.Tenant, error) {
	t, err := m.Tenants.Start(ctx, tenant.Spec{
		Name: "laxity-bench-" + m.Name + "-" + suffix, Labels: map[string]string{task.LabelDeadline: "1h"},
		Args: []string{"--n", strconv.Itoa(m.GPU.N(4096)), "--kernels", "100000"},
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

// people pause one container, and unpause another that was held.
func (m *machine) people(ctx context.Context) (err error) {
	if m.theirs, err = m.tenant(ctx, "theirs"); err != nil {
		return err
	}
	if err := m.docker.ContainerPause(ctx, m.theirs.ID); err != nil {
		return err
	}
	if m.freed, err = m.tenant(ctx, "freed"); err != nil {
		return err
	}
	if err := m.start(ctx, lease); err != nil {
		return err
	}
	if _, err := m.post(ctx, m.contention()); err != nil {
		return err
	}
	if err := m.until(ctx, "one is held", func() bool { return m.paused(ctx, m.freed) && m.held() == 3 }); err != nil {
		return err
	}
	if err := m.docker.ContainerUnpause(ctx, m.freed.ID); err != nil {
		return err
	}
	if err := m.until(ctx, "a person's unpause is noticed", func() bool { return m.held() == 2 && !m.paused(ctx, m.freed) }); err != nil {
		return err
	}
	m.watch(ctx)
	return nil
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
	return []string{"serve", "--node=local", "--exporter=http://" + m.sees,
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

func (m *machine) paused(ctx context.Context, t *tenant.Tenant) bool {
	c, err := m.docker.ContainerInspect(ctx, t.ID)
	return err == nil && c.State.Paused
}

// stuck counts those whom nobody will let go.
func (m *machine) stuck(ctx context.Context) (n int) {
	for _, t := range m.workers {
		if m.paused(ctx, t) {
			n++
		}
	}
	return max(n, m.held())
}

// watch counts from now on, by the engine's events, how often what a person wanted is undone.
func (m *machine) watch(ctx context.Context) {
	messages, failed := m.docker.Events(ctx, events.ListOptions{Filters: filters.NewArgs(filters.Arg("type", "container"),
		filters.Arg("event", "pause"), filters.Arg("event", "unpause"), filters.Arg("container", m.theirs.ID), filters.Arg("container", m.freed.ID))})
	go func() {
		for {
			select {
			case e := <-messages:
				switch {
				case e.Actor.ID == m.theirs.ID && e.Action == events.ActionUnPause:
					m.unpaused.Add(1)
				case e.Actor.ID == m.freed.ID && e.Action == events.ActionPause:
					m.repaused.Add(1)
				}
			case err := <-failed:
				m.blind.Store(&err)
				return
			}
		}
	}()
}

// wronged is what watch has counted, and what is so now.
func (m *machine) wronged(ctx context.Context) (unpaused, repaused int, err error) {
	unpaused, repaused = int(m.unpaused.Load()), int(m.repaused.Load())
	if !m.paused(ctx, m.theirs) {
		unpaused = max(1, unpaused)
	}
	if m.paused(ctx, m.freed) {
		repaused = max(1, repaused)
	}
	if e := m.blind.Load(); e != nil {
		err = fmt.Errorf("the engine's events: %w", *e)
	}
	return unpaused, repaused, err
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

func (m *machine) state(ctx context.Context) (s actuator.State, err error) {
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

// close stops what open started; the containers go with the rig, where a person's
// pause is no obstacle.
func (m *machine) close() {
	if m.actuator != nil {
		_ = m.actuator.Stop()
	}
	if m.exporter != nil {
		_ = m.exporter.Stop()
	}
	if m.docker != nil {
		_ = m.docker.Close()
	}
}
