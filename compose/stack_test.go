package compose_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce/enforcetest/realdocker"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/daemon/dockerd"
	"github.com/laxity/laxity/internal/needtest"
)

// patience is how long a test waits for an event before it gives up. It is longer than what mends
// itself within a minute: the actuator's breaker closes, and Alertmanager repeats an alert.
const patience = 3 * time.Minute

// slow is how long no event takes unless something had to mend itself.
const slow = 30 * time.Second

// composePrograms finds what runs the stack: Compose 2, docker-compose 1.29, or both.
func composePrograms(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, program := range [][]string{{"docker", "compose"}, {"docker-compose"}, {"../.tools/docker-compose"}} {
		out, err := exec.CommandContext(t.Context(), program[0], append(program[1:], "version")...).CombinedOutput()
		name := "Compose 1"
		if strings.Contains(string(out), "Docker Compose version") { // 1 says docker-compose version
			name = "Compose 2"
		}
		if err == nil && found[name] == nil {
			found[name] = program
		}
	}
	if len(found) == 0 {
		needtest.Compose.Skip(t, "Docker Compose is not here (Debian and Ubuntu: apt-get install docker-compose): the stack was only read")
	}
	return found
}

// stackRun is the stack on a Docker engine of its own, with a network of its own.
type stackRun struct {
	*testing.T
	daemon  *dockerd.Engine
	docker  *client.Client
	compose []string
	env     []string
	http    *http.Client
}

func startStack(t *testing.T, program []string) *stackRun {
	t.Helper()
	settings := filepath.Join(t.TempDir(), "env")
	s := &stackRun{T: t, compose: append(slices.Clone(program), "--env-file="+settings, "--project-name=laxity-test")}
	for _, p := range [][]string{{"prometheus"}, {"promtool"}, {"amtool"}, {"prometheus-alertmanager", "alertmanager"}} {
		if !slices.ContainsFunc(p, func(name string) bool { _, err := exec.LookPath(name); return err == nil }) {
			needtest.Prometheus.Skipf(t, "%s is not installed (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager): the stack was not run", p[0])
		}
	}
	s.daemon = realdocker.NewDaemon(t)
	var err error
	if s.docker, err = client.NewClientWithOpts(client.WithHost(s.daemon.Host), client.WithAPIVersionNegotiation()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.docker.Close() })
	s.http = &http.Client{Transport: &http.Transport{DialContext: s.daemon.Dial}}
	t.Cleanup(s.http.CloseIdleConnections)
	// The stack must act on this engine, and on no other. All else build.sh finds.
	s.env = append(os.Environ(), "DOCKER_HOST="+s.daemon.Host, "LAXITY_DOCKER_SOCKET="+strings.TrimPrefix(s.daemon.Host, "unix://"),
		"LAXITY_BPF="+bpfFolder(t),  // that of a stack which runs here is its own
		"LAXITY_HEALTH_INTERVAL=1s", // each service waits so long for the health of those before it
		"LAXITY_ENV_FILE="+settings)
	begun := time.Now()
	build := exec.CommandContext(t.Context(), "./build.sh", "--sim", "--prometheus")
	build.Env = append(slices.Clone(s.env), "LAXITY_BUILD_DIR="+t.TempDir())
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the stack:\n%s\n%s", s.run("ps"), s.run("logs", "--tail=40"))
		}
		s.run("down", "--volumes", "--timeout=30")
		if left, err := s.docker.ContainerList(context.Background(), container.ListOptions{All: true}); err != nil || len(left) > 0 {
			t.Errorf("down leaves %d containers: %v", len(left), err)
		}
	})
	built := time.Now()
	s.up()
	t.Logf("images were built in %v, and up in %v", built.Sub(begun).Round(time.Second), time.Since(built).Round(time.Second))
	return s
}

// statusOf is a field of /proc/PID/status.
func statusOf(t *testing.T, pid int, field string) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// up starts what does not run, and waits until every health check has passed.
func (s *stackRun) up() {
	s.Helper()
	if out, err := s.try("up", "--detach", "--scale=tenant-c=3"); err != nil {
		s.Fatalf("up: %v\n%s", err, out)
	}
	var unwell []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		all, err := s.docker.ContainerList(s.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "com.docker.compose.project=laxity-test"))})
		if err != nil {
			s.Fatal(err)
		}
		unwell = unwell[:0]
		for _, c := range all {
			once := slices.Contains([]string{"secrets", "alertmanager-password"}, c.Labels["com.docker.compose.service"])
			ended := once && c.State == container.StateExited
			healthy := strings.Contains(c.Status, "(healthy)") || c.State == container.StateRunning && !strings.Contains(c.Status, "(")
			// A tenant that waits is well.
			if !ended && !healthy && !strings.Contains(c.Status, "(Paused)") {
				unwell = append(unwell, c.Names[0]+" "+c.Status)
			}
		}
		if len(all) > 0 && len(unwell) == 0 {
			return
		}
	}
	s.Fatalf("not well: %v", unwell)
}

// try is docker compose with arguments.
func (s *stackRun) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.compose[0], append(slices.Clone(s.compose[1:]), args...)...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try that must succeed.
func (s *stackRun) run(args ...string) string {
	s.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.Errorf("docker compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// container returns the id and the first process of a service's container.
func (s *stackRun) container(service string) (id string, pid int) {
	s.Helper()
	c := s.inspect(service)
	return c.ID, c.State.Pid
}

// inspect asks for a service's first container, which Compose 1 calls otherwise than 2.
func (s *stackRun) inspect(service string) container.InspectResponse {
	s.Helper()
	all, err := s.docker.ContainerList(s.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", "com.docker.compose.project=laxity-test"), filters.Arg("label", "com.docker.compose.service="+service), filters.Arg("label", "com.docker.compose.container-number=1"))})
	if err != nil || len(all) != 1 {
		s.Fatalf("%d containers of %s: %v", len(all), service, err)
	}
	c, err := s.docker.ContainerInspect(s.Context(), all[0].ID)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func get[T any](s *stackRun, url string) (v T, err error) {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, url, nil)
	if err != nil {
		return v, err
	}
	answer, err := s.http.Do(req)
	if err != nil {
		return v, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return v, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return v, json.NewDecoder(answer.Body).Decode(&v)
}

// until asks again until the answer is true, and fails the test with the last one.
func until[T any](s *stackRun, what, url string, ok func(T) bool) T {
	s.Helper()
	var (
		v   T
		err error
	)
	begun := time.Now()
	for time.Since(begun) < patience {
		if v, err = get[T](s, url); err == nil && ok(v) {
			if took := time.Since(begun); took > slow {
				s.Logf("%v until %s\n%s", took.Round(time.Second), what, s.decided())
			}
			return v
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatalf("in vain until %s: %v\n%s\n%s", what, err, indented(v), s.decided())
	return v
}

// decided is what the actuator says of everybody, and its last decisions.
func (s *stackRun) decided() string {
	now, err := get[state.State](s, actuatorURL+"/api/v1/state")
	last, err2 := get[[]decision.Decision](s, actuatorURL+"/api/v1/decisions?limit=30")
	return fmt.Sprintf("the actuator: %v\n%s\nits decisions: %v\n%s", err, indented(now), err2, indented(last))
}

func indented(v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

const (
	exporterURL   = "http://127.0.0.1:9870"
	actuatorURL   = "http://127.0.0.1:9871"
	prometheusURL = "http://127.0.0.1:9090"

	alertmanagerURL = "http://127.0.0.1:9093"
)

// alerts is what Prometheus answers to ALERTS{alertname="GPUContention"}.
type alerts struct {
	Data struct {
		Result []struct{ Metric map[string]string }
	}
}

const contention = prometheusURL + `/api/v1/query?query=ALERTS%7Balertname%3D%22GPUContention%22,alertstate%3D%22firing%22%7D`

// The stack as users start it without a GPU: containers contend for one, Prometheus
// and Alertmanager say so, the actuator pauses all but one; when all but one are
// stopped, the alert is resolved and nothing is held.
func TestStack(t *testing.T) {
	if testing.Short() {
		t.Skip("builds images and runs the stack; not with -short")
	}
	for name, program := range composePrograms(t) {
		t.Run(name, func(t *testing.T) { testStack(t, program) })
	}
}

func testStack(t *testing.T, program []string) {
	s := startStack(t, program) // every health check has passed
	for _, step := range []struct {
		name string
		test func(*testing.T)
	}{
		{"contention is arbitrated by way of the alert", s.arbitrated},
		{"rights", s.rights},
		{"alerts need the token", s.token},
		{"Alertmanager needs the password", s.password},
		{"a person looks and acts from within", s.within},
		{"a limit of GPU memory is kept", s.guarded},
		{"actuator and guardian are killed at once", s.killedTogether},
		{"a killed actuator", s.killed},
		{"resolved", s.resolved},
		{"end", s.end},
	} {
		if !t.Run(step.name, step.test) {
			return // the next one begins where this one ended
		}
	}
}

func (s *stackRun) in(t *testing.T) *stackRun {
	c := *s
	c.T = t
	return &c
}

func (s *stackRun) arbitrated(t *testing.T) {
	s = s.in(t)
	paused, unpaused := s.docker.Events(t.Context(), events.ListOptions{Filters: filters.NewArgs(filters.Arg("event", "pause"), filters.Arg("event", "unpause"))})
	snap := until(s, "a task was paused", exporterURL+"/api/v1/tasks", func(v task.Snapshot) bool {
		return slices.ContainsFunc(append(v.Tasks, v.Ended...), func(k task.Task) bool { return k.State == task.Paused || k.PausedSeconds > 0 })
	})
	for _, c := range snap.Containers { // or it would act on another engine's
		if !strings.HasPrefix(c.Name, "laxity-test") {
			t.Fatalf("the exporter sees %s, which is not the stack's", c.Name)
		}
	}
	if snap.Health.Sensor != task.SourceUprobe {
		t.Errorf("the exporter's sensor is %s: %s", snap.Health.Sensor, snap.Health.SensorReason)
	}
	until(s, "the alert fires", contention, func(a alerts) bool { return len(a.Data.Result) == 1 && a.Data.Result[0].Metric["node"] == "local" })
	until(s, "the actuator was told", actuatorURL+"/api/v1/decisions?limit=1000", func(all []decision.Decision) bool {
		return slices.ContainsFunc(all, func(d decision.Decision) bool {
			return d.Kind == decision.Alert && d.Alert == "GPUContention" && d.Result == decision.Opened
		})
	})
	name := ""
	for deadline := time.After(patience); ; {
		select {
		case m := <-paused:
			is := m.Actor.Attributes["name"]
			if !strings.Contains(is, "tenant-") {
				t.Errorf("%s was %sd", is, m.Action)
			}
			if m.Action == events.ActionPause && name == "" {
				name = is
			}
			if m.Action == events.ActionUnPause && name == is {
				return
			}
		case err := <-unpaused:
			t.Fatal(err)
		case <-deadline:
			t.Fatalf("nobody was paused and unpaused (paused: %q)", name)
		}
	}
}

// What runs has the rights that the file says, and no more.
func (s *stackRun) rights(t *testing.T) {
	s = s.in(t)
	for _, service := range []string{"docker-for-exporter", "docker-for-actuator", "prometheus", "alertmanager", "simgpu"} {
		_, pid := s.container(service)
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
			if caps := statusOf(t, pid, set); strings.Trim(caps, "0") != "" {
				t.Errorf("%s: %s is %s", service, set, caps)
			}
		}
	}
	for service, socket := range map[string]bool{"exporter": false, "actuator": false, "guardian": false, "docker-for-actuator": true, "prometheus": false} {
		id, _ := s.container(service)
		c, err := s.docker.ContainerInspect(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		has := slices.ContainsFunc(c.Mounts, func(m container.MountPoint) bool { return m.Destination == "/var/run/docker.sock" })
		if has != socket || c.HostConfig.Privileged || !c.HostConfig.ReadonlyRootfs {
			t.Errorf("%s: docker.sock %v, privileged %v, read-only %v", service, has, c.HostConfig.Privileged, c.HostConfig.ReadonlyRootfs)
		}
	}
}

func (s *stackRun) token(t *testing.T) {
	s = s.in(t)
	post := func(token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, actuatorURL+"/api/v1/alerts", bytes.NewBufferString(`{"version":"4","alerts":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		return s.status(t, req)
	}
	if code := post("0123456789abcdef0123456789abcdef"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", code)
	}
	_, pid := s.container("actuator")
	token, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/laxity-secrets/webhook-token", pid))
	if err != nil {
		t.Fatal(err)
	}
	if code := post(strings.TrimSpace(string(token))); code != http.StatusOK {
		t.Errorf("the token: %d", code)
	}
}

// status is that of the answer to a request.
func (s *stackRun) status(t *testing.T, req *http.Request) int {
	t.Helper()
	answer, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// password: without it nobody acts by way of Alertmanager, which has the token.
func (s *stackRun) password(t *testing.T) {
	s = s.in(t)
	post := func(alertname, action, password string) int {
		alert := fmt.Sprintf(`[{"labels":{"alertname":%q,"action":%q,"node":"local","container":%q}}]`, alertname, action, strings.TrimPrefix(s.inspect("tenant-a").Name, "/"))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, alertmanagerURL+"/api/v2/alerts", strings.NewReader(alert))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if password != "" {
			req.SetBasicAuth("laxity", password)
		}
		return s.status(t, req)
	}
	for _, wrong := range []string{"", "0123456789abcdef0123456789abcdef"} {
		if code := post("Stranger", "pause", wrong); code != http.StatusUnauthorized {
			t.Errorf("with the password %q: %d", wrong, code)
		}
	}
	_, pid := s.container("alertmanager")
	password, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/laxity-alertmanager/password", pid))
	if err != nil {
		t.Fatal(err)
	}
	// An action that the actuator does not know: it notes the alert. By then it would know of the others.
	if code := post("Acquaintance", "test", strings.TrimSpace(string(password))); code != http.StatusOK {
		t.Errorf("with the password: %d", code)
	}
	of := func(alertname string) func(decision.Decision) bool {
		return func(d decision.Decision) bool { return d.Alert == alertname }
	}
	all := until(s, "the actuator was told of an alert with the password", actuatorURL+"/api/v1/decisions?limit=1000", func(all []decision.Decision) bool {
		return slices.ContainsFunc(all, of("Acquaintance"))
	})
	if slices.ContainsFunc(all, of("Stranger")) {
		t.Error("the actuator was told of an alert without the password")
	}
	now, err := get[state.State](s, actuatorURL+"/api/v1/state")
	if err != nil || slices.ContainsFunc(now.Leases, func(l lease.Lease) bool { return l.Alert == "Stranger" }) {
		t.Errorf("leases %v, %v", now.Leases, err)
	}
	// Whoever asks from within has it.
	for _, ask := range [][]string{
		{"alertmanager", "amtool", "--alertmanager.url=" + alertmanagerURL, "--http.config.file=/etc/laxity/alertmanager-client.yml", "alert"},
		{"actuator", "laxity", "check", "--prometheus.config.file=/etc/laxity/alertmanager-client.yml", "--send-test-alert", "--json"},
	} {
		said, _ := s.try(append([]string{"exec", "-T"}, ask...)...) // laxity check fails for what a container lacks
		if strings.Contains(said, "401 Unauthorized") || !strings.Contains(said, "Acquaintance") && !strings.Contains(said, "reached the actuator") {
			t.Errorf("%v: %s", ask, said)
		}
	}
}

// within: the image has laxity, which finds exporter and actuator there, and acts with the token.
func (s *stackRun) within(t *testing.T) {
	s = s.in(t)
	if ps := s.run("exec", "-T", "actuator", "laxity", "ps"); !strings.Contains(ps, "tenant-a") {
		t.Errorf("laxity ps: %s", ps)
	}
	name := strings.TrimPrefix(s.inspect("tenant-a").Name, "/")
	if said := s.run("exec", "-T", "actuator", "laxity", "deadline", name, "9s"); !strings.Contains(said, "9s") {
		t.Errorf("laxity deadline: %s", said)
	}
}

// limited runs the tenants' program in a container with a limit of GPU memory, which is removed at the end of the test.
func (s *stackRun) limited(name, limit string, args ...string) (id string) {
	s.Helper()
	like := s.inspect("tenant-a") // one that has ended will do
	made, err := s.docker.ContainerCreate(s.Context(), &container.Config{Image: like.Config.Image, Entrypoint: like.Config.Entrypoint,
		Cmd: args, Env: like.Config.Env, Labels: map[string]string{"laxity.gpu-memory": limit}},
		&container.HostConfig{NetworkMode: "none", Binds: like.HostConfig.Binds, Mounts: like.HostConfig.Mounts}, nil, nil, name)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = s.docker.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true})
	})
	if err := s.docker.ContainerStart(s.Context(), made.ID, container.StartOptions{}); err != nil {
		s.Fatal(err)
	}
	return made.ID
}

// guarded: a program that asks for more than its container may hold is refused.
func (s *stackRun) guarded(t *testing.T) {
	s = s.in(t)
	s.limited("laxity-test-limited", "64MiB", "--n", "4096", "--runs", "1")
	until(s, "its allocation was refused", actuatorURL+"/api/v1/decisions?limit=1000", func(all []decision.Decision) bool {
		return slices.ContainsFunc(all, func(d decision.Decision) bool {
			return d.Container == "laxity-test-limited" && d.Kind == decision.Memory && strings.Contains(d.Reason, "its limit is 64 MiB")
		})
	})
}

// killedTogether: a process stands at an allocation, and both who could continue it are killed. Its record outlives them,
// and they continue it when they are started again.
func (s *stackRun) killedTogether(t *testing.T) {
	s = s.in(t)
	s.run("stop", "--timeout=1", "tenant-a", "tenant-b", "tenant-c") // nobody is to be paused
	// It asks again and again, for more than it may have; not before it is guarded.
	id := s.limited("laxity-test-asking", "2GiB", "--n", "64", "--more", "4096", "--more-after", "3")
	until(s, "it is refused", actuatorURL+"/api/v1/decisions?limit=1000", func(all []decision.Decision) bool {
		return slices.ContainsFunc(all, func(d decision.Decision) bool {
			return d.Container == "laxity-test-asking" && d.Kind == decision.Memory
		})
	})
	asking, err := s.docker.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	stopped := func() bool { // once it goes on, it may end
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", asking.State.Pid))
		return err == nil && strings.Contains(string(status), "\nState:\tT")
	}
	for _, service := range []string{"guardian", "actuator"} { // neither answers it
		if _, pid := s.container(service); syscall.Kill(pid, syscall.SIGSTOP) != nil {
			t.Fatalf("%s has ended", service)
		}
	}
	s.await("it stands at its next allocation", stopped)
	s.run("kill", "actuator", "guardian")
	if !stopped() {
		t.Error("it goes on though nobody has answered it")
	}
	s.run("up", "--detach", "guardian", "actuator") // and no tenant, for which it would be frozen as it stands
	s.await("it goes on", func() bool { return !stopped() })
	s.up()
}

// await looks again until ok.
func (s *stackRun) await(what string, ok func() bool) {
	s.Helper()
	for begun := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			s.Fatalf("in vain until %s\n%s", what, s.decided())
		}
	}
}

// waits reports whether somebody is held or paused.
func waits(v task.Snapshot) bool {
	return slices.ContainsFunc(v.Tasks, func(k task.Task) bool { return k.State == task.Held || k.State == task.Paused })
}

// killed: the guardian releases everybody at once, Docker starts the actuator
// again, and it arbitrates again.
func (s *stackRun) killed(t *testing.T) {
	s = s.in(t)
	until(s, "somebody waits", exporterURL+"/api/v1/tasks", waits)
	id, pid := s.container("actuator")
	// Docker must not start it again before we have looked.
	policy := container.UpdateConfig{RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled}}
	if _, err := s.docker.ContainerUpdate(t.Context(), id, policy); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(s, "nobody waits", exporterURL+"/api/v1/tasks", func(v task.Snapshot) bool { return !waits(v) })
	took := time.Since(at)
	t.Logf("%v after the actuator was killed the exporter shows nobody held or paused", took.Round(time.Millisecond))
	if took > slow { // the guardian promises 1 s, but a busy machine may stall for longer
		t.Errorf("releasing took %v", took)
	}
	dead, failed := s.docker.ContainerWait(t.Context(), id, container.WaitConditionNotRunning)
	select {
	case <-dead: // the kernel takes its probes off first
	case err := <-failed:
		t.Fatal(err)
	}
	s.up()
	until(s, "somebody waits again", exporterURL+"/api/v1/tasks", waits)
}

func (s *stackRun) resolved(t *testing.T) {
	s = s.in(t)
	s.run("stop", "tenant-b", "tenant-c")
	until(s, "the alert is resolved", contention, func(a alerts) bool { return len(a.Data.Result) == 0 })
	until(s, "nothing is arbitrated or held", actuatorURL+"/api/v1/state", func(v state.State) bool {
		// A deadline that was missed keeps others: the node is drained for ten minutes.
		arbitrate := slices.ContainsFunc(v.Leases, func(l lease.Lease) bool { return l.Wish == lease.Arbitrate })
		return len(v.Holds) == 0 && !arbitrate && len(v.GPUs) == 1 && !v.GPUs[0].Arbitrated
	})
	until(s, "tenant-a goes on", exporterURL+"/api/v1/tasks", func(v task.Snapshot) bool {
		return len(v.Tasks) == 1 && strings.Contains(v.Tasks[0].Container, "tenant-a") && v.Tasks[0].State == task.Running
	})
}

// end: all obey SIGTERM, in an order in which nobody stays held.
func (s *stackRun) end(t *testing.T) {
	s = s.in(t)
	s.run("start", "tenant-b", "tenant-c")
	until(s, "somebody waits", exporterURL+"/api/v1/tasks", waits)
	s.run("stop", "actuator", "guardian", "docker-for-actuator")
	for service, want := range map[string]int{"actuator": 0, "guardian": 0, "docker-for-actuator": 0} {
		if c := s.inspect(service); c.State.ExitCode != want {
			t.Errorf("%s: exit code %d", service, c.State.ExitCode)
		}
	}
	until(s, "nobody waits", exporterURL+"/api/v1/tasks", func(v task.Snapshot) bool { return !waits(v) })
}
