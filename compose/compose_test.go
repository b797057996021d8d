// Package compose_test checks the stack as far as that can be done without a
// registry: the files parse, name only what exists, and ask for no more rights
// than they say.
package compose_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/internal/needtest"
)

type service struct {
	Image       string
	Entrypoint  []string
	Command     []string
	Profiles    []string
	Volumes     []string
	Ports       []string
	CapDrop     []string `yaml:"cap_drop"`
	ReadOnly    bool     `yaml:"read_only"`
	Privileged  bool
	NetworkMode string `yaml:"network_mode"`
	Environment map[string]string
	Restart     string
	CapAdd      []string `yaml:"cap_add"`
	PID         string   `yaml:"pid"`
	Cgroup      string
	Security    []string `yaml:"security_opt"`
	Healthcheck struct{ Test []string }

	StopGracePeriod string `yaml:"stop_grace_period"`
}

type stack struct {
	Services map[string]service
	Volumes  map[string]any
}

func read[T any](t *testing.T, file string) (v T) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

// whole is the stack with a simulated GPU.
func whole(t *testing.T) stack {
	t.Helper()
	s, sim := read[stack](t, "compose.yaml"), read[stack](t, "sim.yaml")
	for name, sv := range sim.Services {
		if _, ok := s.Services[name]; !ok {
			s.Services[name] = sv
		}
	}
	maps.Copy(s.Volumes, sim.Volumes)
	return s
}

func TestServices(t *testing.T) {
	s := whole(t)
	for _, name := range []string{"exporter", "guardian", "actuator", "prometheus", "alertmanager", "docker-for-exporter", "docker-for-actuator", "secrets", "alertmanager-password"} {
		if sv, ok := s.Services[name]; !ok || len(sv.Profiles) > 0 {
			t.Errorf("%s must be in the stack whatever the profile", name)
		}
	}
	for name, sv := range s.Services {
		if sv.Image == "" {
			t.Errorf("%s has no image", name)
		}
		if sv.Privileged || !slices.Equal(sv.CapDrop, []string{"ALL"}) {
			t.Errorf("%s must drop all capabilities and add what it needs", name)
		}
		if !sv.ReadOnly || !slices.Contains(sv.Security, "no-new-privileges:true") {
			t.Errorf("%s can write to its root, or gain rights", name)
		}
		if once := name == "secrets" || name == "alertmanager-password" || strings.HasPrefix(name, "tenant"); !once && (sv.Restart != "unless-stopped" || len(sv.Healthcheck.Test) < 2) {
			t.Errorf("%s must be started again, and say whether it is well", name)
		}
		if proxy := strings.HasPrefix(name, "docker-for-"); proxy != slices.ContainsFunc(sv.Volumes, func(v string) bool { return strings.Contains(v, "docker.sock") }) {
			t.Errorf("%s: Docker's socket belongs into the proxies alone", name)
		}
		if sv.NetworkMode == "host" {
			loopbackOnly(t, name, sv)
		}
		for _, v := range sv.Volumes {
			source, _, _ := strings.Cut(v, ":")
			switch {
			case strings.HasPrefix(source, "."):
				if _, err := os.Stat(source); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
				if !strings.HasSuffix(v, ":ro") {
					t.Errorf("%s can write to %s of the repository", name, source)
				}
			case !strings.HasPrefix(source, "/") && !strings.HasPrefix(source, "$"):
				if _, ok := s.Volumes[source]; !ok {
					t.Errorf("%s mounts the volume %s, which is not declared", name, source)
				}
			}
		}
	}
	acting := s.Services["actuator"].Volumes
	if len(acting) == 0 || len(s.Services["guardian"].Volumes) == 0 {
		t.Error("no volumes")
	}
	for _, v := range s.Services["guardian"].Volumes {
		if !slices.Contains(acting, v) {
			t.Errorf("the guardian has %s, and the actuator has not: they must see the same state, engine and cgroups", v)
		}
	}
}

// TestMemoryGuardsRecordOutlivesTheContainers: Docker unmounts a volume whose last user is gone, and what is on record there is
// gone with it. So it is a folder of the host's BPF file system.
func TestMemoryGuardsRecordOutlivesTheContainers(t *testing.T) {
	for _, name := range []string{"actuator", "guardian"} {
		if v := read[stack](t, "compose.yaml").Services[name].Volumes; !slices.Contains(v, "${LAXITY_BPF:-/sys/fs/bpf/laxity}:/sys/fs/bpf") {
			t.Errorf("%s mounts %v", name, v)
		}
	}
}

// TestStopWaitsForSwaps: a step of a swap may take half a minute and what 100 MB/s need, and whoever is killed in it takes
// the checkpoint helper along.
func TestStopWaitsForSwaps(t *testing.T) {
	for _, name := range []string{"actuator", "guardian"} {
		if wait, err := time.ParseDuration(read[stack](t, "compose.yaml").Services[name].StopGracePeriod); err != nil || wait < 10*time.Minute {
			t.Errorf("Docker kills the %s after %v, %v", name, wait, err)
		}
	}
}

// loopbackOnly: with the host's network, what listens on all addresses is open to
// everybody.
func loopbackOnly(t *testing.T, name string, sv service) {
	t.Helper()
	if len(sv.Ports) > 0 {
		t.Errorf("%s publishes ports", name)
	}
	for _, arg := range append(slices.Clone(sv.Command), sv.Environment["GF_SERVER_HTTP_ADDR"]) {
		if strings.HasPrefix(strings.TrimPrefix(arg, "--web.listen-address="), "127.0.0.1") {
			return
		}
	}
	t.Errorf("%s does not say that it listens on 127.0.0.1 alone", name)
}

// The flags that the stack gives our programs exist.
func TestFlags(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "../cmd/laxity-exporter", "../cmd/laxity-actuator", "./simgpu").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	flag := regexp.MustCompile(`^--[a-z][a-z.-]*`)
	for name, sv := range whole(t).Services {
		if len(sv.Entrypoint) == 0 || sv.Entrypoint[0] == "matmul" {
			continue
		}
		program := exec.CommandContext(t.Context(), filepath.Join(dir, sv.Entrypoint[0]), "--help-long")
		help, err := program.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, help)
		}
		for _, arg := range sv.Command {
			f := flag.FindString(arg)
			if strings.HasPrefix(arg, "/") {
				continue // a path
			}
			if f == "" {
				if !strings.Contains(string(help), "\n"+arg+" ") && !strings.Contains(string(help), "\n  "+arg+" ") {
					t.Errorf("%s: %s has no command %s", name, sv.Entrypoint[0], arg)
				}
				continue
			}
			if !regexp.MustCompile(regexp.QuoteMeta(f) + `[=\s.]`).Match(help) {
				t.Errorf("%s: %s has no flag %s", name, sv.Entrypoint[0], f)
			}
		}
	}
}

func TestComposeConfig(t *testing.T) {
	for version, program := range composePrograms(t) {
		for name, tc := range map[string]struct {
			files          string
			says, saysNone []string
		}{
			"GPU": {"compose.yaml:gpu.yaml", []string{"--device=auto", "runtime: nvidia", "NVIDIA_DRIVER_CAPABILITIES: compute,utility", "grafana"}, []string{"simgpu", "tenant"}},
			"sim": {"compose.yaml:sim.yaml", []string{"simgpu:", "tenant-a:"}, []string{"runtime: nvidia"}},
			// Docker before 23 and docker-compose, which takes no capability twice.
			"old Docker": {"compose.yaml:sim.yaml", []string{"CAP_SYS_ADMIN"}, []string{"PERFMON"}},
			"cgroup":     {"compose.yaml:sim.yaml:cgroup.yaml", []string{"cgroup: host"}, nil},
		} {
			if name == "cgroup" && version == "Compose 1" {
				continue // build.sh says what it lacks
			}
			t.Run(version+" "+name, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), program[0], append(slices.Clone(program[1:]), "config")...)
				cmd.Env = append(os.Environ(), "COMPOSE_FILE="+tc.files, "COMPOSE_PROFILES=grafana", "COMPOSE_PROJECT_NAME=laxity", "LAXITY_DEVICE=") // whatever .env says here
				if name == "old Docker" {
					cmd.Env = append(cmd.Env, "LAXITY_CAP_BPF=SYS_ADMIN", "LAXITY_CAP_PERFMON=CAP_SYS_ADMIN")
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", cmd, err, out)
				}
				for _, s := range tc.says {
					if !strings.Contains(string(out), s) {
						t.Errorf("no %q in the configuration", s)
					}
				}
				for _, s := range tc.saysNone {
					if strings.Contains(string(out), s) {
						t.Errorf("%q in the configuration", s)
					}
				}
			})
		}
	}
}

func TestPrometheusAndAlertmanagerAcceptTheirFiles(t *testing.T) {
	for program, args := range map[string][]string{
		"promtool": {"check", "config", "prometheus.yml"},
		"amtool":   {"check-config", "alertmanager.yml"},
	} {
		t.Run(program, func(t *testing.T) {
			path, err := exec.LookPath(program)
			if err != nil {
				needtest.Prometheus.Skipf(t, "%s is not installed (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager)", program)
			}
			if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
			}
		})
	}
}

// What the latency, and the holds' leases, rest on.
func TestAlertmanagerIsFastAndRepeats(t *testing.T) {
	type route struct {
		Receiver       string
		GroupBy        []string      `yaml:"group_by"`
		GroupWait      string        `yaml:"group_wait"`
		GroupInterval  time.Duration `yaml:"group_interval"`
		RepeatInterval time.Duration `yaml:"repeat_interval"`
		Matchers       []string
		Continue       bool
		Routes         []route
	}
	c := read[struct {
		Route     route
		Receivers []struct {
			Name     string
			Webhooks []struct {
				URL          string
				SendResolved bool `yaml:"send_resolved"`
				MaxAlerts    int  `yaml:"max_alerts"`
				HTTP         struct {
					Authorization struct {
						File string `yaml:"credentials_file"`
					}
				} `yaml:"http_config"`
			} `yaml:"webhook_configs"`
		}
	}](t, "alertmanager.yml")
	r := c.Route
	if !slices.Equal(r.GroupBy, []string{"..."}) || r.GroupWait != "0s" || r.GroupInterval > 100*time.Millisecond {
		t.Errorf("the route waits: %+v", r)
	}
	act := r.Routes[0]
	if act.Receiver != "actuator" || !act.Continue || !slices.Equal(act.Matchers, []string{`action=~".+"`}) {
		t.Errorf("alerts with an action must go to the actuator and on to people: %+v", act)
	}
	if act.RepeatInterval <= 0 || act.RepeatInterval > config.DefaultLease/2 {
		t.Errorf("alerts are repeated every %v; the actuator's lease is %v, and one repeat may be lost", act.RepeatInterval, config.DefaultLease)
	}
	if people := r.Routes[1]; len(r.Routes) != 2 || people.Receiver != "people" || !slices.Equal(people.Matchers, []string{`severity=~"warning|critical"`}) || people.GroupInterval < time.Minute {
		t.Errorf("people must get warnings in batches, and no trigger: %+v", people)
	}
	w := c.Receivers[0].Webhooks
	if len(w) != 1 || !w[0].SendResolved || w[0].MaxAlerts != 0 || !strings.HasSuffix(w[0].URL, ":9871/api/v1/alerts") {
		t.Errorf("webhook: %+v", w)
	}
	token := w[0].HTTP.Authorization.File
	if !slices.Contains(read[stack](t, "compose.yaml").Services["actuator"].Command, "--web.bearer-token-file="+token) {
		t.Errorf("Alertmanager shows the token in %q, the actuator wants another one", token)
	}
}

// TestAlertmanagerAsksForAPassword: who posts alerts acts with Alertmanager's token. Prometheus, amtool and
// laxity check have the password that the service alertmanager-password makes, and Alertmanager its hash.
func TestAlertmanagerAsksForAPassword(t *testing.T) {
	type client struct {
		Auth struct {
			User     string `yaml:"username"`
			Password string `yaml:"password_file"`
		} `yaml:"basic_auth"`
	}
	s := read[stack](t, "compose.yaml")
	makes := s.Services["alertmanager-password"]
	password := makes.Command[1] // token FILE
	i := slices.IndexFunc(makes.Command, func(arg string) bool { return strings.HasPrefix(arg, "--web-config=") })
	if i < 0 {
		t.Fatalf("%v makes no web configuration", makes.Command)
	}
	_, web, _ := strings.Cut(makes.Command[i], "=")
	if got := s.Services["alertmanager"].Command; !slices.Contains(got, "--web.config.file="+web) {
		t.Errorf("Alertmanager asks nobody: %v", got)
	}
	clients := read[struct {
		Alerting struct{ Alertmanagers []client }
	}](t, "prometheus.yml").Alerting.Alertmanagers
	for _, c := range append(clients, read[client](t, "alertmanager-client.yml")) {
		if c.Auth.User != "laxity" || c.Auth.Password != password {
			t.Errorf("a client of Alertmanager has %+v; the password is in %s", c.Auth, password)
		}
	}
	for _, name := range []string{"prometheus", "alertmanager", "actuator"} {
		if v := s.Services[name].Volumes; !slices.Contains(v, makes.Volumes[0]+":ro") {
			t.Errorf("%s cannot read the password: %v", name, v)
		}
	}
	for name, sv := range s.Services {
		token := slices.ContainsFunc(sv.Volumes, func(v string) bool { return strings.HasPrefix(v, "secrets:") })
		if needs := slices.Contains([]string{"secrets", "exporter", "actuator", "alertmanager"}, name); token != needs {
			t.Errorf("%s has the token: %v", name, token)
		}
	}
}

// Grafana's files name what is there: the folders that it mounts, the data source.
func TestGrafanaProvisioning(t *testing.T) {
	g := read[stack](t, "compose.yaml").Services["grafana"]
	mounted := map[string]string{}
	for _, v := range g.Volumes {
		if parts := strings.Split(v, ":"); len(parts) == 3 {
			mounted[parts[1]] = parts[0]
		}
	}
	boards := read[struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}](t, mounted["/etc/grafana/provisioning/dashboards/laxity.yml"])
	if len(boards.Providers) != 1 || boards.APIVersion != 1 || boards.Providers[0].Type != "file" || mounted[boards.Providers[0].Options.Path] == "" {
		t.Errorf("%+v does not name a mounted folder", boards)
	}
	home := g.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if _, err := os.Stat(filepath.Join(mounted[filepath.Dir(home)], filepath.Base(home))); err != nil {
		t.Error("the home dashboard:", err)
	}
	sources := read[struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct{ Name, UID, Type, Access, URL string }
	}](t, mounted["/etc/grafana/provisioning/datasources/laxity.yml"])
	if len(sources.Datasources) != 1 || sources.APIVersion != 1 {
		t.Fatalf("%+v", sources)
	}
	d := sources.Datasources[0]
	listens := "--web.listen-address=" + strings.TrimPrefix(d.URL, "http://")
	if d.Type != "prometheus" || d.Access != "proxy" || !slices.Contains(read[stack](t, "compose.yaml").Services["prometheus"].Command, listens) {
		t.Errorf("%+v is not where Prometheus listens", d)
	}
}
