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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/placement"
	prom "github.com/laxity/laxity/actuator/placement/prometheus"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/daemon"
)

// stack is the programs of one machine.
type stack struct {
	gpu                                          *simtest.Server
	exporter, actuator, prometheus, alertmanager string // addresses
	// query asks a Prometheus as it comes, which takes classic buckets; native one that
	// scrapes native histograms.
	query, native *prom.Client
}

// startStack starts everything and waits until each answers. how says how the actuator holds
// containers.
func startStack(t *testing.T, how ...string) *stack {
	t.Helper()
	prometheusProgram := program(t, "prometheus")
	alertmanagerProgram := program(t, "prometheus-alertmanager", "alertmanager")
	bin := buildPrograms(t)

	ports, err := daemon.FreeAddresses(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{exporter: ports[0], actuator: ports[1], prometheus: ports[2], alertmanager: ports[3]}
	// A task has the phases of a 16384² one on an H200, but twice as fast.
	s.gpu = simtest.Start(t, sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512).Faster(2)}}})

	start(t, s.exporter, filepath.Join(bin, "laxity-exporter"), "--node=local", "--device=sim:"+s.gpu.Socket,
		// Starts by the GPU's list alone: other tests' containers are none of ours,
		// though they use the same library.
		"--sensor=device", "--state-dir="+t.TempDir(), "--web.listen-address="+s.exporter)
	secrets := t.TempDir()
	token, password, web := filepath.Join(secrets, "token"), filepath.Join(secrets, "password"), filepath.Join(secrets, "web.yml")
	for _, args := range [][]string{{"token", token}, {"token", password, "--web-config=" + web}} {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "laxity-actuator"), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	start(t, s.actuator, filepath.Join(bin, "laxity-actuator"), append([]string{"serve", "--node=local", "--exporter=http://" + s.exporter,
		"--device=sim:" + s.gpu.Socket, "--memory-guard=off", "--swap=off", "--web.bearer-token-file=" + token, "--state-dir=" + t.TempDir(), "--lock-dir=" + t.TempDir(), "--web.listen-address=" + s.actuator}, how...)...)

	rules, err := filepath.Abs("../../rules")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	am := configure(t, dir, "alertmanager.yml", map[string]string{
		"127.0.0.1:9871": s.actuator, "/run/laxity-secrets/webhook-token": token,
	})
	secret, err := os.ReadFile(password)
	if err != nil {
		t.Fatal(err)
	}
	// With the password: it is asked whether it is ready.
	start(t, "laxity:"+strings.TrimSpace(string(secret))+"@"+s.alertmanager, alertmanagerProgram, "--config.file="+am, "--web.listen-address="+s.alertmanager, "--web.config.file="+web,
		"--cluster.listen-address=", "--storage.path="+t.TempDir())
	configure(t, dir, "targets/exporters.yml", map[string]string{"127.0.0.1:9870": s.exporter})
	configure(t, dir, "targets/actuators.yml", map[string]string{"127.0.0.1:9871": s.actuator})
	config := configure(t, dir, "prometheus.yml", map[string]string{
		"127.0.0.1:9090": s.prometheus, "127.0.0.1:9093": s.alertmanager, "../rules": rules, "/run/laxity-alertmanager/password": password,
	})
	scrape := func(address string, more ...string) *prom.Client {
		start(t, address, prometheusProgram, append([]string{"--config.file=" + config, "--web.listen-address=" + address,
			"--storage.tsdb.path=" + t.TempDir(), "--rules.alert.resend-delay=5s"}, more...)...)
		c, err := prom.NewClient("http://"+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s.query, s.native = scrape(s.prometheus), scrape(ports[4], "--enable-feature=native-histograms")
	return s
}

// nodes returns the ranking for a container with a deadline of 9 s.
func (s *stack) nodes(ctx context.Context) (placement.Ranking, error) {
	nodes, err := prom.NewSource(s.query).Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return placement.Paper.Rank(nodes, placement.Request{Deadline: 9, GPUMemory: 1 << 20}, time.Now()), nil
}

func (s *stack) fetch(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

func (s *stack) snapshot(ctx context.Context) (snap task.Snapshot, err error) {
	err = s.fetch(ctx, "http://"+s.exporter+"/api/v1/tasks", &snap)
	return snap, err
}

// happenings follows what the Docker engine says about one container, from since on.
func happenings(t *testing.T, docker *client.Client, name string, since time.Time) <-chan string {
	t.Helper()
	from := fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond())
	messages, failed := docker.Events(t.Context(), events.ListOptions{Since: from, Filters: filters.NewArgs(
		filters.Arg("type", "container"), filters.Arg("container", name),
		filters.Arg("event", "pause"), filters.Arg("event", "unpause"), filters.Arg("event", "die"))})
	actions := make(chan string, 100)
	go func() {
		defer close(actions)
		for {
			select {
			case m := <-messages:
				actions <- string(m.Action)
			case <-failed:
				return
			}
		}
	}()
	return actions
}

func await(t *testing.T, actions <-chan string, want string) {
	t.Helper()
	select {
	case got := <-actions:
		if got != want {
			t.Fatalf("the engine says %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no %s within %v", want, patience)
	}
}

// Two containers contend for a GPU. Prometheus sees it in the exporter's metrics
// and raises the alert; Alertmanager tells the actuator; the actuator pauses the
// second container, and unpauses it when the first one's task has ended.
func TestContentionIsPausedByWayOfTheAlertAndUnpausedAtTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Docker and Prometheus; not with -short")
	}
	docker := simtest.Docker(t)
	// By edf who is in time waits for as long as it takes: with fifo the second one would join the first
	// after half a minute, which a busy machine needs for the queries below.
	s := startStack(t, "--policy=edf", "--share=one", "--hold=pause")
	image := simtest.Image(t, docker)
	until(t, "the idle node is ranked", func(ctx context.Context) error {
		r, err := s.nodes(ctx)
		if err != nil {
			return err
		}
		if best, ok := r.Best(); !ok || best.Node.Name != "local" || best.GPU == "" {
			return fmt.Errorf("%s", r.Summary())
		}
		return nil
	})

	// It has ended a task and stays: what is told only of living containers with an ended task
	// has an answer however late it is asked for.
	idle := s.gpu.StartContainer(t, docker, simtest.Spec{Image: image, Args: []string{"--n", "512", "--destroy", "--hold", "3600"},
		Labels: map[string]string{"laxity.deadline": "10m"}, Rests: true})
	seen(t, s, idle.Name)
	idle.Begin(t)
	ended(t, s, map[string]int{idle.Name: 1})
	begin := time.Now()
	// It holds the GPU until the test ends it: what is looked at meanwhile takes as long
	// as it takes.
	first := s.gpu.StartContainer(t, docker, simtest.Spec{Image: image, Args: []string{"--n", "512", "--kernels", "2", "--hold", "3600"},
		Labels: map[string]string{"laxity.deadline": "10m"}})
	seen(t, s, first.Name)
	second := s.gpu.StartContainer(t, docker, simtest.Spec{Image: image, Args: []string{"--n", "512", "--kernels", "2", "--host-seconds", "1.5", "--runs", "2"},
		Labels: map[string]string{"laxity.deadline": "10m"}, Rests: true})
	actions := happenings(t, docker, second.Name, begin)
	others := happenings(t, docker, first.Name, begin)

	await(t, actions, "pause")
	second.Begin(t) // once it is unpaused
	until(t, "the exporter and Prometheus show the paused task", func(ctx context.Context) error {
		v, err := s.query.Query(ctx, fmt.Sprintf(`gpu_tasks{node="local",container=%q,state="paused"} == 1`, second.Name), time.Time{})
		if err != nil {
			return err
		}
		if len(v) != 1 {
			return fmt.Errorf("%v", v)
		}
		return nil
	})
	until(t, "the alert fires while a task is paused", func(ctx context.Context) error {
		v, err := s.query.Query(ctx, `ALERTS{alertname="GPUContention",alertstate="firing",node="local",action="arbitrate"}`, time.Time{})
		if err != nil || len(v) != 1 {
			return fmt.Errorf("%v, %w", v, err)
		}
		return nil
	})

	// The driver's samples lag: the last of the series that only a living process has.
	until(t, "Prometheus has the use of the multiprocessors", func(ctx context.Context) error {
		v, err := s.query.Query(ctx, fmt.Sprintf(`gpu_container_sm_utilization_ratio{container=%q}`, first.Name), time.Time{})
		if err == nil && len(v) == 0 {
			err = errors.New("no answer")
		}
		return err
	})
	if err := s.gpu.Xid(s.gpu.UUIDs()[0], 31); err != nil {
		t.Fatal(err)
	}
	// Some have an answer only while a task is paused.
	open := s.unanswered(t, nil)
	until(t, "the queries of the dashboards that need no ended task have been answered", func(context.Context) error {
		open = s.unanswered(t, open)
		return open.without(afterAnEnd).err()
	})
	first.Kill(t)
	await(t, others, "die")
	await(t, actions, "unpause")
	await(t, actions, "die")
	if code := second.Wait(t); code != 0 {
		t.Errorf("%s: exit code %d", second.Name, code)
	}
	ended(t, s, map[string]int{first.Name: 1, second.Name: 2}, second.Name)
	decided(t, s, first.Name, second.Name)
	until(t, "every query of the dashboards has been answered", func(context.Context) error {
		open = s.unanswered(t, open)
		return open.err()
	})
	until(t, "the alert is resolved and the node ranked again", func(ctx context.Context) error {
		v, err := s.query.Query(ctx, `ALERTS{alertname="GPUContention"}`, time.Time{})
		if err != nil || len(v) > 0 {
			return fmt.Errorf("alerts %v, %w", v, err)
		}
		r, err := s.nodes(ctx)
		if err != nil {
			return err
		}
		if _, ok := r.Best(); !ok {
			return fmt.Errorf("%s", r.Summary())
		}
		return nil
	})
}

// seen waits until the exporter shows the container's task as running.
func seen(t *testing.T, s *stack, container string) {
	t.Helper()
	until(t, "the task of "+container+" is seen", func(ctx context.Context) error {
		snap, err := s.snapshot(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(snap.Tasks, func(k task.Task) bool { return k.Container == container && k.State == task.Running }) {
			return fmt.Errorf("tasks: %v", snap.Tasks)
		}
		return nil
	})
}

// ended waits until the exporter shows so many ended tasks of each container, all in time, and
// that those named have been paused.
func ended(t *testing.T, s *stack, want map[string]int, paused ...string) {
	t.Helper()
	until(t, "the tasks have ended, in time", func(ctx context.Context) error {
		snap, err := s.snapshot(ctx)
		if err != nil {
			return err
		}
		for name, n := range want {
			tasks, seconds := 0, task.Seconds(0)
			for _, k := range snap.Ended {
				if k.Container != name {
					continue
				}
				if o := k.Outcome(); o != task.Hit {
					return fmt.Errorf("%s: %s", name, o)
				}
				tasks, seconds = tasks+1, seconds+k.PausedSeconds
			}
			if tasks != n {
				return fmt.Errorf("%s has %d ended tasks, want %d", name, tasks, n)
			}
			if (seconds > 0) != slices.Contains(paused, name) {
				return fmt.Errorf("%s was paused for %v s", name, seconds)
			}
		}
		return nil
	})
}

// decided checks that the pause came by way of the alert.
func decided(t *testing.T, s *stack, first, second string) {
	t.Helper()
	var all []decision.Decision
	if err := s.fetch(t.Context(), "http://"+s.actuator+"/api/v1/decisions", &all); err != nil {
		t.Fatal(err)
	}
	index := func(is func(decision.Decision) bool) int { return slices.IndexFunc(all, is) }
	alert := index(func(d decision.Decision) bool { return d.Kind == decision.Alert && d.Alert == "GPUContention" })
	pause := index(func(d decision.Decision) bool {
		return d.Kind == decision.Pause && d.Container == second && d.Result == decision.Done
	})
	unpause := index(func(d decision.Decision) bool {
		return d.Kind == decision.Unpause && d.Container == second && d.Result == decision.Done
	})
	wrong := index(func(d decision.Decision) bool { return d.Kind == decision.Pause && d.Container == first })
	if alert < 0 || pause < alert || unpause < pause || wrong >= 0 {
		t.Errorf("want the alert, then pause and unpause of %s, and nothing on %s: %+v", second, first, all)
	}
}
