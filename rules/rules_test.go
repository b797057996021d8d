package rules_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	actuator "github.com/laxity/laxity/actuator/collector"
	exporter "github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/rules"
)

// The unit tests of the rules are promtool's, in tests/. Without promtool the
// engine's tests in cmd/laxity still evaluate the rules.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		needtest.Prometheus.Skip(t, "promtool is not installed (Debian and Ubuntu: apt-get install prometheus; elsewhere it comes with Prometheus): the rules' unit tests did not run")
	}
	tests, err := filepath.Glob("tests/*.yml")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for _, args := range [][]string{
		{"check", "rules", "recording.yml", "alerts.yml"},
		append([]string{"test", "rules"}, tests...),
	} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func load(t *testing.T) map[string][]rulefmt.Rule {
	t.Helper()
	files := map[string][]rulefmt.Rule{}
	names, err := fs.Glob(rules.FS, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := fs.ReadFile(rules.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		// Legacy names, as Prometheus 2 checks them.
		groups, errs := rulefmt.Parse(content, false, model.LegacyValidation, parser.NewParser(parser.Options{}), promslog.NewNopLogger())
		for _, err := range errs {
			t.Errorf("%s: %v", name, err)
		}
		for _, g := range groups.Groups {
			files[name] = append(files[name], g.Rules...)
		}
	}
	return files
}

// What the actuator and the placement rely on.
func TestContract(t *testing.T) {
	files := load(t)
	recorded := map[string]bool{}
	for _, r := range files["recording.yml"] {
		if r.Record == "" {
			t.Errorf("recording.yml holds an alert: %s", r.Alert)
		}
		recorded[r.Record] = true
	}
	for _, name := range []string{
		"node:seen:timestamp_seconds", "node:fresh:bool", "node:memory_idle:bytes", "image:task_duration:seconds",
		"node:float:seconds", "node:rank:score",
	} {
		if !recorded[name] {
			t.Errorf("%s is not recorded", name)
		}
	}
	actions := map[string]string{
		"GPUContention": "arbitrate", "GPUMemoryPressure": "relieve", "GPUTaskDeadlineAtRisk": "expedite",
		"GPUNodeNotProvisionable": "drain", "GPUTaskDeadlineMissed": "", "GPUContainerPausedTooLong": "",
		"LaxityExporterDown": "", "LaxityActuatorDown": "",
	}
	for _, r := range files["alerts.yml"] {
		if want, ok := actions[r.Alert]; ok && r.Labels["action"] != want {
			t.Errorf("%s: action = %q, want %q", r.Alert, r.Labels["action"], want)
		}
		delete(actions, r.Alert)
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || !strings.Contains(r.Annotations["description"], "To do:") {
			t.Errorf("%s: a severity, a summary and what to do are missing", r.Alert)
		}
	}
	for name := range actions {
		t.Errorf("%s is missing", name)
	}
}

// A trigger that read a recorded series would wait for another group's evaluation.
func TestTriggersReadWhatIsExposed(t *testing.T) {
	for _, r := range load(t)["alerts.yml"] {
		switch r.Labels["action"] {
		case "arbitrate", "relieve", "expedite":
			if strings.Contains(r.Expr, "node:") || strings.Contains(r.Expr, "node_gpu:") {
				t.Errorf("%s reads a recorded series: %s", r.Alert, r.Expr)
			}
		}
	}
}

// Every metric that a rule reads is exposed by our programs or recorded here.
func TestRulesReadWhatExists(t *testing.T) {
	names := map[string]bool{"up": true, "ALERTS": true, "ALERTS_FOR_STATE": true}
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, c := range []interface{ Describe(chan<- *prometheus.Desc) }{exporter.New(exporter.Options{}), actuator.New()} {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for d := range descs {
			names[fqName.FindStringSubmatch(d.String())[1]] = true
		}
	}
	files := load(t)
	for _, r := range files["recording.yml"] {
		names[r.Record] = true
	}
	for file, list := range files {
		for _, r := range list {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if s, ok := n.(*parser.VectorSelector); ok && !names[s.Name] {
					t.Errorf("%s: %s reads %s, which does not exist", file, r.Record+r.Alert, s.Name)
				}
				return nil
			})
		}
	}
}

// README.md's tables list every rule and alert.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rules := range load(t) {
		for _, r := range rules {
			if name := r.Record + r.Alert; !strings.Contains(string(readme), "`"+name) {
				t.Errorf("README.md does not mention %s", name)
			}
		}
	}
}
