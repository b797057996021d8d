// Package check_test renders the chart as helm does, and reads what comes out with Kubernetes' own
// types, strictly: a field that they do not know is an error.
package check_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringalpha "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1alpha1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartFolder = "../laxity"
	namespace   = "laxity"
	kubernetes  = "v1.31.0"
)

// object is one of what the chart makes, as text and as Kubernetes' type.
type object struct {
	text  string
	typed meta.Object
	kind  string
}

// types are what the chart may make: nothing else needs a right at the API server.
var types = map[string]func() meta.Object{
	"v1 ServiceAccount":  func() meta.Object { return &core.ServiceAccount{} },
	"v1 Secret":          func() meta.Object { return &core.Secret{} },
	"v1 Service":         func() meta.Object { return &core.Service{} },
	"v1 ConfigMap":       func() meta.Object { return &core.ConfigMap{} },
	"v1 ResourceQuota":   func() meta.Object { return &core.ResourceQuota{} },
	"apps/v1 Deployment": func() meta.Object { return &apps.Deployment{} },
	"apps/v1 DaemonSet":  func() meta.Object { return &apps.DaemonSet{} },
	"monitoring.coreos.com/v1 ServiceMonitor":           func() meta.Object { return &monitoring.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule":           func() meta.Object { return &monitoring.PrometheusRule{} },
	"monitoring.coreos.com/v1alpha1 AlertmanagerConfig": func() meta.Object { return &monitoringalpha.AlertmanagerConfig{} },
}

// render renders the chart with values in YAML over the chart's own, in the order of kinds in which
// helm installs.
func render(t *testing.T, values string) []object {
	t.Helper()
	files := rendered(t, values)
	delete(files, notes)
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		t.Fatal(err)
	}
	var objects []object
	for _, m := range sorted {
		objects = append(objects, decode(t, m.Content))
	}
	return objects
}

// notes is what helm prints at the end.
const notes = "laxity/templates/NOTES.txt"

// rendered are the chart's files by their names, rendered with values in YAML over the chart's own,
// in a cluster with the Prometheus operator.
func rendered(t *testing.T, values string) map[string]string {
	t.Helper()
	return renderedIn(t, values, "monitoring.coreos.com/v1", "monitoring.coreos.com/v1alpha1")
}

// renderedIn is rendered in a cluster that has these besides Kubernetes' own resources.
func renderedIn(t *testing.T, values string, resources ...string) map[string]string {
	t.Helper()
	files, err := tryRender(t, values, resources...)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// tryRender is renderedIn for values that the chart may refuse.
func tryRender(t *testing.T, values string, resources ...string) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	over, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	capabilities := *chartutil.DefaultCapabilities
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	capabilities.KubeVersion = *version
	capabilities.APIVersions = slices.Concat(capabilities.APIVersions, resources)
	all, err := chartutil.ToRenderValues(c, over, chartutil.ReleaseOptions{Name: "laxity", Namespace: namespace, Revision: 1, IsInstall: true}, &capabilities)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Engine{Strict: true}.Render(c, all)
}

func decode(t *testing.T, text string) object {
	t.Helper()
	var head meta.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	make := types[head.APIVersion+" "+head.Kind]
	if make == nil {
		t.Fatalf("the chart makes a %s of %s: nothing says why\n%s", head.Kind, head.APIVersion, text)
	}
	typed := make()
	if err := yaml.UnmarshalStrict([]byte(text), typed); err != nil {
		t.Fatalf("%s: %v\n%s", head.Kind, err, text)
	}
	if typed.GetNamespace() != namespace {
		t.Errorf("%s %s is in the namespace %q", head.Kind, typed.GetName(), typed.GetNamespace())
	}
	return object{text: text, typed: typed, kind: head.Kind}
}

// find returns the one object of this type and name.
func find[T meta.Object](t *testing.T, objects []object, name string) T {
	t.Helper()
	for _, o := range objects {
		if typed, ok := o.typed.(T); ok && o.typed.GetName() == name {
			return typed
		}
	}
	var none T
	t.Fatalf("there is no %T %s", none, name)
	return none
}

// kinds says how many of each kind there are.
func kinds(objects []object) map[string]int {
	n := map[string]int{}
	for _, o := range objects {
		n[o.kind]++
	}
	return n
}

// variants are the values that the tests try; each must render.
var variants = map[string]string{
	"defaults":       "",
	"named secret":   "token: {existingSecret: mine}",
	"observe only":   "actuator: {enabled: false}",
	"old kernel":     "linuxBefore610: true",
	"alerts":         "alertmanager: {enabled: true}",
	"alerts of many": "{actuator: {hostPort: 9871}, alertmanager: {enabled: true, nodes: [{node: gpu-1, address: 'gpu-1.example:9871'}, {node: gpu-2, address: 'gpu-2.example:9871'}]}}",
	"bare":           "{serviceMonitor: {enabled: false}, prometheusRule: {enabled: false}, dashboards: {enabled: false}, runtimeClassName: '', priorityClassName: '', nodeSelector: {nvidia.com/gpu.present: null}, tolerations: []}",
	"decorated":      "{podLabels: {team: a}, podAnnotations: {note: b}, image: {tag: x, pullSecrets: [{name: s}]}, serviceMonitor: {labels: {release: p}}, prometheusRule: {labels: {release: p}}, exporter: {args: [--busy.gap=20ms]}, affinity: {nodeAffinity: {}}}",
	"quota":          "resourceQuota: {enabled: true}",
	"placement":      placing,
	"placement's IP": "placement: {enabled: true, prometheus: 'http://p:9090', clusterIP: 10.96.0.99, args: [--ranking=paper], nodeSelector: {place: here}, tolerations: [{key: control, operator: Exists}]}",
	"ports":          "{exporter: {port: 19870}, actuator: {port: 19871}}",
	"cri-o":          "engine: {args: ['--crio.address=/run/engine/crio.sock'], socketFolder: /var/run/crio, readCgroups: true}",
}

// placing are the values of the committed manifest.
const placing = "{token: {existingSecret: laxity-token}, placement: {enabled: true, prometheus: 'http://prometheus-operated.monitoring.svc:9090'}}"

func TestVariants(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			objects := render(t, values)
			find[*apps.DaemonSet](t, objects, "laxity")
			if n := kinds(objects); n["ServiceAccount"] != 1 || n["DaemonSet"] != 1 {
				t.Error(n)
			}
		})
	}
}

// TestRefused: what would not work is refused, with what to do.
func TestRefused(t *testing.T) {
	const docker, tag = "the nodes must run containerd or CRI-O", "image.tag: put it in quotes (--set-string)"
	for values, want := range map[string]string{
		"engine: {args: ['--docker.host=unix:///run/engine/docker.sock'], socketFolder: /var/run}":     docker,
		"engine: {args: [--docker.host, 'unix:///run/engine/docker.sock']}":                            docker,
		"engine: {args: [--engine=docker]}":                                                            docker,
		"engine: {args: [--engine, docker]}":                                                           docker,
		"engine: {args: [--engine=containerd, --containerd.address=/run/engine/dockershim/ctrd.sock]}": "",
		"image: {tag: 1234567}":   tag,
		"image: {tag: 1.10}":      tag,
		"image: {tag: 1e5}":       tag,
		"image: {tag: 0}":         tag,
		"image: {tag: true}":      tag,
		"image: {tag: '1234567'}": "",
		"image: {tag: 0.2.0}":     "",
	} {
		_, err := tryRender(t, values)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// TestNotes: what helm prints at the end leads to what runs.
func TestNotes(t *testing.T) {
	for values, want := range map[string]struct{ has, hasNot string }{
		"defaults":     {"port-forward POD 9871\n\ndocs/", "placements"},
		"observe only": {"port-forward POD 9870\n\ndocs/", "9871"},
		"placement":    {"port-forward service/laxity-placement 9871\n\ndocs/", "9870"},
	} {
		if text := rendered(t, variants[values])[notes]; !strings.Contains(text, want.has) || strings.Contains(text, want.hasNot) || strings.Contains(text, "\n\n\n") {
			t.Errorf("%s: %s", values, text)
		}
	}
}

// TestWithoutTheOperator: the chart can be installed in a cluster without the Prometheus operator, and
// says what that means. What is asked for by name is made all the same: helm then says what lacks.
func TestWithoutTheOperator(t *testing.T) {
	for values, want := range map[string]bool{"": false, "serviceMonitor: {enabled: true}": true, "prometheusRule: {enabled: true}": true} {
		files, made := renderedIn(t, values), false
		said := files[notes]
		delete(files, notes)
		for _, text := range files {
			made = made || strings.Contains(text, "monitoring.coreos.com")
		}
		if made != want || strings.Contains(said, "No ServiceMonitor was made") == strings.Contains(values, "serviceMonitor") {
			t.Errorf("%q: made %t, want %t\n%s", values, made, want, said)
		}
	}
}

func TestWhatIsLeftOut(t *testing.T) {
	if n := kinds(render(t, variants["bare"])); n["ConfigMap"]+n["ServiceMonitor"]+n["PrometheusRule"] != 0 {
		t.Error(n)
	}
	if n := kinds(render(t, variants["named secret"])); n["Secret"] != 0 {
		t.Error(n)
	}
	d := find[*apps.DaemonSet](t, render(t, variants["observe only"]), "laxity").Spec.Template.Spec
	if len(d.InitContainers) != 0 || len(d.Containers) != 1 || d.Containers[0].Name != "exporter" {
		t.Errorf("it observes only, and runs %d and %d containers", len(d.InitContainers), len(d.Containers))
	}
	if slices.ContainsFunc(d.Volumes, func(v core.Volume) bool { return v.Name == "cgroup" || v.Name == "bpf" }) {
		t.Error("it observes only, and has what the actuator writes to")
	}
}

// With CRI-O the exporter reads the node's control groups, and writes to none; without, it sees none.
func TestExporterReadsCgroups(t *testing.T) {
	for values, want := range map[string]bool{"": false, variants["cri-o"]: true} {
		got := false
		for _, c := range containers(t, render(t, values)) {
			for _, m := range c.VolumeMounts {
				if c.Name == "exporter" && m.Name == "cgroup" {
					got = m.ReadOnly && m.MountPath == "/sys/fs/cgroup"
				}
			}
		}
		if got != want {
			t.Errorf("with %q it reads control groups: %v, want %v", values, got, want)
		}
	}
}

// chartFile reads a file of the chart.
func chartFile(name string) string { return filepath.Join(chartFolder, filepath.FromSlash(name)) }

// containers are all containers of the pods, those that start first first.
func containers(t *testing.T, objects []object) []core.Container {
	t.Helper()
	spec := find[*apps.DaemonSet](t, objects, "laxity").Spec.Template.Spec
	return slices.Concat(spec.InitContainers, spec.Containers)
}

func caps(c core.Container) string {
	if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil {
		return ""
	}
	return fmt.Sprint(c.SecurityContext.Capabilities.Add)
}
