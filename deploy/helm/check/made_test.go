package check_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// writes says whether `make manifests` runs these tests: they write what they else compare.
var writes = os.Getenv("LAXITY_MANIFESTS") == "write"

// keep compares a file with what it should hold, or writes it.
func keep(t *testing.T, path string, want []byte) {
	t.Helper()
	if writes {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what it is made from any more (%v): run `make manifests` and commit what it writes", path, err)
	}
}

// TestFiles: rules and dashboards of the chart are those of the repository.
func TestFiles(t *testing.T) {
	var made []string
	for _, pattern := range []string{"rules/*.yml", "dashboards/*.json"} {
		files, err := filepath.Glob("../../../" + pattern)
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimPrefix(filepath.ToSlash(f), "../../../")
			name = strings.TrimPrefix(name, "rules/")
			keep(t, chartFile("files/"+name), text)
			made = append(made, chartFile("files/"+name))
		}
	}
	there, err := filepath.Glob(chartFile("files/*.yml"))
	boards, err2 := filepath.Glob(chartFile("files/dashboards/*.json"))
	if err != nil || err2 != nil || len(there)+len(boards) != len(made) {
		t.Errorf("the chart has %v %v, the repository %v", there, boards, made)
	}
}

// TestVersion: the chart, and so the image that it asks for, has the version of the newest release in
// the changelog.
func TestVersion(t *testing.T) {
	changes, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)$`).FindSubmatch(changes)
	if newest == nil {
		t.Fatal("the changelog has no release")
	}
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	if want := string(newest[1]); c.Metadata.Version != want || c.Metadata.AppVersion != want {
		t.Errorf("version %s, appVersion %s; CHANGELOG.md has %s: write it into Chart.yaml, and run `make manifests`", c.Metadata.Version, c.Metadata.AppVersion, want)
	}
}

// TestRulesAreEqual: what Prometheus gets from the chart is what a Prometheus without Kubernetes
// loads.
func TestRulesAreEqual(t *testing.T) {
	for _, name := range []string{"recording", "alerts"} {
		file, err := os.ReadFile("../../../rules/" + name + ".yml")
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		file = bytes.TrimSpace(file) // as helm does
		if err := yaml.Unmarshal(file, &want); err != nil {
			t.Fatal(err)
		}
		for _, o := range render(t, "") {
			if o.kind == "PrometheusRule" && o.typed.GetName() == "laxity-"+name {
				var rule struct{ Spec any }
				if err := yaml.Unmarshal([]byte(o.text), &rule); err != nil {
					t.Fatal(err)
				}
				got = rule.Spec
			}
		}
		a, err := yaml.Marshal(want)
		b, err2 := yaml.Marshal(got)
		if err != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("rules/%s.yml differs in the chart: %v %v\n%s\n%s", name, err, err2, a, b)
		}
	}
}

const head = "# Made from deploy/helm/laxity by `make manifests`. Do not edit.\n"

// TestManifests: the plain manifests are what the chart gives, in three files: what runs, what
// needs the Prometheus operator and Grafana, and what places pods.
func TestManifests(t *testing.T) {
	var runs, watches strings.Builder
	runs.WriteString(head + "# The Secret laxity-token must be there: docs/kubernetes.md says how to make it.\n---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + namespace + "\n  labels: {pod-security.kubernetes.io/enforce: privileged}\n")
	watches.WriteString(head)
	for _, o := range render(t, "{token: {existingSecret: laxity-token}, alertmanager: {enabled: true}}") {
		into := &runs
		if strings.HasPrefix(o.typed.GetName(), "laxity-dashboard-") || strings.Contains(o.text, "monitoring.coreos.com") {
			into = &watches
		}
		into.WriteString("---\n" + strings.TrimSpace(o.text) + "\n")
	}
	var places strings.Builder
	places.WriteString(head + "# docs/kubernetes.md says what to change here, and how kube-scheduler gets its configuration.\n")
	for _, o := range render(t, placing) {
		if strings.Contains(o.text, "app.kubernetes.io/name: laxity-placement\n") {
			places.WriteString("---\n" + strings.TrimSpace(o.text) + "\n")
		}
	}
	keep(t, "../../kubernetes/placement.yaml", []byte(places.String()))
	keep(t, "../../kubernetes/laxity.yaml", []byte(strings.ReplaceAll(runs.String(), "app.kubernetes.io/managed-by: Helm\n", "app.kubernetes.io/managed-by: manifests\n")))
	keep(t, "../../kubernetes/monitoring.yaml", []byte(strings.ReplaceAll(watches.String(), "app.kubernetes.io/managed-by: Helm\n", "app.kubernetes.io/managed-by: manifests\n")))
}
