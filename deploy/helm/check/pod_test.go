package check_test

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringalpha "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1alpha1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestPrivileges: the pods have the rights that README.md explains, and no other.
func TestPrivileges(t *testing.T) {
	objects := render(t, "")
	spec := find[*apps.DaemonSet](t, objects, "laxity").Spec.Template.Spec
	if !spec.HostPID || spec.HostNetwork || spec.HostIPC {
		t.Errorf("host's PIDs %v, network %v, IPC %v", spec.HostPID, spec.HostNetwork, spec.HostIPC)
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("the pods get a token for the API server, of which they ask nothing")
	}
	want := map[string]string{
		"guardian": "[KILL SYS_PTRACE DAC_READ_SEARCH BPF]",
		"exporter": "[SYS_PTRACE DAC_READ_SEARCH BPF PERFMON]",
		"actuator": "[KILL SYS_PTRACE DAC_READ_SEARCH BPF PERFMON]",
	}
	readme, err := os.ReadFile(chartFile("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers(t, objects) {
		s := c.SecurityContext
		if s.Privileged != nil && *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.Capabilities.Drop[0] != "ALL" ||
			s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: %+v", c.Name, s)
		}
		if caps(c) != want[c.Name] {
			t.Errorf("%s has %s, want %s", c.Name, caps(c), want[c.Name])
		}
		for _, right := range s.Capabilities.Add {
			if !strings.Contains(string(readme), "`"+string(right)+"`") {
				t.Errorf("README.md does not explain %s", right)
			}
		}
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil && !strings.Contains(string(readme), "`"+v.HostPath.Path+"`") {
			t.Errorf("README.md does not explain the folder %s of the node", v.HostPath.Path)
		}
	}
	for _, c := range containers(t, render(t, variants["old kernel"])) {
		if strings.Contains(caps(c), "BPF") || strings.Contains(caps(c), "PERFMON") || !strings.Contains(caps(c), "SYS_ADMIN") {
			t.Errorf("before Linux 6.10 %s has %s", c.Name, caps(c))
		}
	}
}

// TestQuota: it lets in the pods of the daemon set's priority class, and is there only if asked for.
func TestQuota(t *testing.T) {
	objects := render(t, variants["quota"])
	class := find[*apps.DaemonSet](t, objects, "laxity").Spec.Template.Spec.PriorityClassName
	spec := find[*core.ResourceQuota](t, objects, "laxity").Spec
	if pods := spec.Hard[core.ResourcePods]; pods.Value() != 1000 {
		t.Errorf("%v", spec.Hard)
	}
	want := core.ScopedResourceSelectorRequirement{ScopeName: core.ResourceQuotaScopePriorityClass, Operator: core.ScopeSelectorOpIn, Values: []string{class}}
	if got := spec.ScopeSelector.MatchExpressions; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, without := range []string{"", "{resourceQuota: {enabled: true}, priorityClassName: ''}"} {
		if n := kinds(render(t, without)); n["ResourceQuota"] != 0 {
			t.Errorf("%q: %v", without, n)
		}
	}
}

// TestTokenOfCommands: laxity, run in a container, finds the token that the program there asks for.
func TestTokenOfCommands(t *testing.T) {
	objects := render(t, placing)
	all := slices.Concat(containers(t, objects), find[*apps.Deployment](t, objects, "laxity-placement").Spec.Template.Spec.Containers)
	for _, c := range all {
		if c.Name == "guardian" {
			continue // no command asks it
		}
		i := slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == "LAXITY_TOKEN_FILE" })
		if i < 0 || !slices.Contains(c.Args, "--web.bearer-token-file="+c.Env[i].Value) {
			t.Errorf("%s: %v", c.Name, c.Env)
		}
	}
}

// TestMounts: the exporter writes to its state alone; what is mounted exists, and is used.
func TestMounts(t *testing.T) {
	objects := render(t, "")
	spec := find[*apps.DaemonSet](t, objects, "laxity").Spec.Template.Spec
	used := map[string]bool{}
	for _, c := range containers(t, objects) {
		for _, m := range c.VolumeMounts {
			used[m.Name] = true
			if !slices.ContainsFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
			if c.Name == "exporter" && m.Name != "state" && !m.ReadOnly || m.Name == "engine" && !m.ReadOnly {
				t.Errorf("%s may write to %s", c.Name, m.Name)
			}
		}
	}
	for _, v := range spec.Volumes {
		if !used[v.Name] {
			t.Errorf("nobody mounts %s", v.Name)
		}
	}
}

// TestGuardian: it is a sidecar, so that it watches before the actuator starts and ends after it.
func TestGuardian(t *testing.T) {
	g := containers(t, render(t, ""))[0]
	if g.Name != "guardian" || g.RestartPolicy == nil || *g.RestartPolicy != core.ContainerRestartPolicyAlways || g.StartupProbe == nil {
		t.Errorf("%s: %v %v", g.Name, g.RestartPolicy, g.StartupProbe)
	}
}

// TestFlags: the programs know every flag that the chart gives them.
func TestFlags(t *testing.T) {
	flag := regexp.MustCompile(`^(--[a-z][a-z.-]*)(=.*)?$`)
	for name, values := range variants {
		for _, c := range containers(t, render(t, values)) {
			page, err := os.ReadFile("../../../docs/reference/" + c.Command[0] + ".md")
			if err != nil {
				t.Fatal(err)
			}
			of := string(page)
			if len(c.Command) > 1 { // of a command, its section
				_, of, _ = strings.Cut(of, "\n## "+c.Command[0]+" "+c.Command[1]+"\n")
				of, _, _ = strings.Cut(of, "\n## ")
			}
			for _, arg := range c.Args {
				m := flag.FindStringSubmatch(arg)
				if m == nil || !strings.Contains(of, "`"+m[1]+"`") {
					t.Errorf("%s: %v knows no %s", name, c.Command, arg)
				}
			}
		}
	}
}

// args are the flags of a container, and its command.
func args(t *testing.T, values, name string) []string {
	t.Helper()
	all := containers(t, render(t, values))
	return all[slices.IndexFunc(all, func(c core.Container) bool { return c.Name == name })].Args
}

// TestNothingOutlastsLivenessProbes: by default no container stands still for as long as the kubelet's default liveness
// probe takes to fail: three in a row, every 10 s. The first may fall on the beginning of the wait.
func TestNothingOutlastsLivenessProbes(t *testing.T) {
	got := args(t, "", "actuator")
	if !slices.Contains(got, "--swap=off") || !slices.Contains(got, "--memory-wait=15s") {
		t.Errorf("%v", got)
	}
	for values, want := range map[string]string{
		"actuator: {swap: auto}":      "--swap=auto",
		"actuator: {swap: off}":       "--swap=off", // false, to YAML
		"actuator: {memoryWait: 5m}":  "--memory-wait=5m",
		"actuator: {args: [--x=y=z]}": "--x=y=z", // as --containers.label=io.kubernetes.pod.namespace=team
	} {
		if got := args(t, values, "actuator"); !slices.Contains(got, want) {
			t.Errorf("%s: %v", values, got)
		}
	}
	if got := fmt.Sprint(args(t, "actuator: {args: [--swap=auto, --memory-wait=5m]}", "actuator")); strings.Count(got, "--swap") != 1 || strings.Count(got, "--memory-wait") != 1 {
		t.Errorf("a flag is there twice, with which the actuator does not start: %s", got)
	}
}

// TestEndWaitsForSwaps: a step of a swap may take half a minute and what 100 MB/s need, and the engine kills the checkpoint
// helper together with who started it.
func TestEndWaitsForSwaps(t *testing.T) {
	spec := find[*apps.DaemonSet](t, render(t, ""), "laxity").Spec.Template.Spec
	if s := spec.TerminationGracePeriodSeconds; s == nil || *s < 600 {
		t.Errorf("%v", s)
	}
}

// TestHungActuatorEndsSoon: while an actuator hangs, containers whose channels it switched off stay off. Who may be
// swapping has the pod's time to end.
func TestHungActuatorEndsSoon(t *testing.T) {
	for values, want := range map[string]int64{
		"":                                     30,
		"actuator: {swap: off}":                30, // false, to YAML
		"actuator: {args: [--max-hold=1m]}":    30,
		"actuator: {swap: auto}":               0,
		"actuator: {args: [--swap=auto]}":      0,
		"actuator: {args: ['--swap', 'auto']}": 0,
	} {
		for _, c := range containers(t, render(t, values)) {
			got := int64(0)
			if s := c.LivenessProbe.TerminationGracePeriodSeconds; s != nil {
				got = *s
			}
			if c.Name == "actuator" && got != want || c.Name == "guardian" && got != 0 {
				t.Errorf("%q: %s that hangs has %d s to end (0: the pod's), want %d", values, c.Name, got, want)
			}
		}
	}
}

// TestRollout: one node after another, unless a value says more: one that never gets ready stops the others.
func TestRollout(t *testing.T) {
	for values, want := range map[string]string{"": "1", "maxUnavailable: 3": "3", "maxUnavailable: 10%": "10%"} {
		if got := find[*apps.DaemonSet](t, render(t, values), "laxity").Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; got.String() != want {
			t.Errorf("%q: %v, want %s", values, got, want)
		}
	}
}

// TestNodesOfTheGPUOperator: what docs/kubernetes.md adds where the operator manages the driver selects by the operator's
// label, beside the other one. A label's value is text: a cluster refuses true.
func TestNodesOfTheGPUOperator(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	set := regexp.MustCompile(`--set-string '(nodeSelector[^']*)'`).FindSubmatch(page)
	if set == nil {
		t.Fatal("the page sets no nodeSelector")
	}
	parsed, err := strvals.ParseString(string(set[1]))
	if err != nil {
		t.Fatal(err)
	}
	values, err := yaml.Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	got := find[*apps.DaemonSet](t, render(t, string(values)), "laxity").Spec.Template.Spec.NodeSelector
	if want := map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.device-plugin": "true"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestKubeVersionOfTheDocs: helm template asks no cluster. The version that it takes for the cluster's is 1.29 in helm
// 3.14, which the chart refuses.
func TestKubeVersionOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`helm template (.*)`).FindAllString(string(page), -1)
	if len(commands) == 0 {
		t.Error("the page has no helm template")
	}
	for _, command := range commands {
		given := regexp.MustCompile(`--kube-version (\S+)`).FindStringSubmatch(command)
		if given == nil {
			t.Errorf("no --kube-version: %s", command)
			continue
		}
		if v, err := chartutil.ParseKubeVersion(given[1]); err != nil || !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, v.String()) {
			t.Errorf("%v %v: the chart is for %s", given, err, c.Metadata.KubeVersion)
		}
	}
}

// TestAddressesOfCommands: laxity, run in a container, finds exporter and actuator whatever their ports are. By default
// it needs no address of the actuator, which would make laxity ps fail while the actuator is down.
func TestAddressesOfCommands(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"defaults":     {"LAXITY_EXPORTER_URL": "http://127.0.0.1:9870"},
		"ports":        {"LAXITY_EXPORTER_URL": "http://127.0.0.1:19870", "LAXITY_ACTUATOR_URL": "http://127.0.0.1:19871"},
		"observe only": {"LAXITY_EXPORTER_URL": "http://127.0.0.1:9870"},
	} {
		for _, c := range containers(t, render(t, variants[name])) {
			got := map[string]string{}
			for _, e := range c.Env {
				if strings.HasSuffix(e.Name, "_URL") {
					got[e.Name] = e.Value
				}
			}
			if c.Name != "guardian" && !maps.Equal(got, want) { // no command is run in the guardian
				t.Errorf("%s: %s has %v, want %v", name, c.Name, got, want)
			}
		}
	}
	observing := "{actuator: {enabled: false, port: 19871}}"
	if text := rendered(t, observing)["laxity/templates/daemonset.yaml"]; strings.Contains(text, "LAXITY_ACTUATOR_URL") {
		t.Error("it observes only, and commands ask an actuator")
	}
}

// TestCPURequests: the kernel weighs containers by them, and who guards others must get its turn.
func TestCPURequests(t *testing.T) {
	want := map[string]string{"exporter": "250m", "actuator": "250m", "guardian": "100m"}
	for _, c := range containers(t, render(t, "")) {
		if got := c.Resources.Requests.Cpu().String(); got != want[c.Name] {
			t.Errorf("%s requests %s, want %s", c.Name, got, want[c.Name])
		}
	}
}

// TestPorts: monitors find services, services find pods, and both agree on the port.
func TestPorts(t *testing.T) {
	objects := render(t, "")
	pod := find[*apps.DaemonSet](t, objects, "laxity").Spec.Template
	for _, name := range []string{"exporter", "actuator"} {
		s := find[*core.Service](t, objects, "laxity-"+name)
		for key, value := range s.Spec.Selector {
			if pod.Labels[key] != value {
				t.Errorf("service %s wants pods with %s=%s", name, key, value)
			}
		}
		m := find[*monitoring.ServiceMonitor](t, objects, "laxity-"+name)
		for key, value := range m.Spec.Selector.MatchLabels {
			if s.Labels[key] != value {
				t.Errorf("monitor %s wants services with %s=%s", name, key, value)
			}
		}
		c := containers(t, objects)[slices.IndexFunc(containers(t, objects), func(c core.Container) bool { return c.Name == name })]
		if port := c.Ports[0]; port.Name != s.Spec.Ports[0].TargetPort.StrVal || port.ContainerPort != s.Spec.Ports[0].Port || m.Spec.Endpoints[0].Port != s.Spec.Ports[0].Name {
			t.Errorf("%s: %+v %+v %+v", name, port, s.Spec.Ports[0], m.Spec.Endpoints[0].Port)
		}
		if job := m.Spec.Endpoints[0].RelabelConfigs[0]; *job.Replacement != "laxity-"+name || job.TargetLabel != "job" {
			t.Errorf("the rules know the job laxity-%s, not %+v", name, job)
		}
	}
}

// TestReceivers: each node's actuator is told of its own alerts, with the token.
func TestReceivers(t *testing.T) {
	a := find[*monitoringalpha.AlertmanagerConfig](t, render(t, variants["alerts of many"]), "laxity")
	if len(a.Spec.Receivers) != 3 || len(a.Spec.Route.Routes) != 2 {
		t.Fatalf("%+v", a.Spec)
	}
	for i, node := range []string{"gpu-1", "gpu-2"} {
		r := a.Spec.Receivers[i+1]
		hook := r.WebhookConfigs[0]
		if r.Name != node || *hook.URL != "http://"+node+".example:9871/api/v1/alerts" || hook.HTTPConfig.Authorization.Credentials.Name != "laxity-token" {
			t.Errorf("%s: %+v", node, hook)
		}
		if !strings.Contains(string(a.Spec.Route.Routes[i].Raw), `"value":"`+node+`"`) {
			t.Errorf("%s", a.Spec.Route.Routes[i].Raw)
		}
	}
	one := find[*monitoringalpha.AlertmanagerConfig](t, render(t, variants["alerts"]), "laxity")
	if url := *one.Spec.Receivers[1].WebhookConfigs[0].URL; url != "http://laxity-actuator.laxity.svc:9871/api/v1/alerts" {
		t.Error(url)
	}
}
