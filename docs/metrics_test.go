package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	actuator "github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/nodes"
	exporter "github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/internal/reference"
)

// metric is what a collector says of one.
type metric struct{ name, help, kind, labels string }

var (
	descParts = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`)
	typeLine  = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
)

// kinds reads the types of metrics from the golden files of the collectors' tests;
// a description does not have them.
func kinds(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := filepath.Glob(filepath.Join(reference.Root(), "*", "collector", "testdata", "*.metrics"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range typeLine.FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = m[2]
		}
	}
	return all
}

// describer is what has metrics.
type describer interface{ Describe(chan<- *prometheus.Desc) }

func metrics(t *testing.T, of ...describer) (found []metric) {
	t.Helper()
	known := kinds(t)
	for _, c := range of {
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for d := range descs {
			m := descParts.FindStringSubmatch(d.String())
			if m == nil {
				t.Errorf("cannot read %s", d)
				continue
			}
			one := metric{name: m[1], help: strings.ReplaceAll(m[2], `\"`, `"`), labels: strings.ReplaceAll(m[3], ",", ", "), kind: known[m[1]]}
			switch {
			case one.kind == "" && strings.HasSuffix(one.name, "_total"):
				one.kind = "counter"
			case one.kind == "":
				one.kind = "gauge"
			}
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return found
}

const metricsHead = `# Metrics

Labels: ` + "`container`" + ` is a container's name, ` + "`gpu`" + ` a UUID; never a PID or a command line. The exporter's series of a
container in a pod of Kubernetes have ` + "`namespace` and `pod`" + ` besides. A series without a value
is absent, not 0; counts are 0. Prometheus adds the target's labels, ` + "`node`" + ` among them. Histograms have
classic buckets, and native ones for a Prometheus that scrapes those. Besides these, the exporter has the
usual ` + "`process_*`" + ` (at most a second old), ` + "`go_*` and `promhttp_*`" + ` of itself.
`

func TestReferenceOfMetrics(t *testing.T) {
	f, err := forward.New(forward.Options{Directory: &nodes.File{}})
	if err != nil {
		t.Fatal(err)
	}
	observed := metrics(t, exporter.New(exporter.Options{}))
	acted := metrics(t, actuator.New(), f)
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, part := range []struct {
		title string
		list  []metric
	}{{"Exporter", observed}, {"Actuator", acted}} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", part.title)
		for _, m := range part.list {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, reference.Cell(m.help))
		}
	}
	reference.Keep(t, "metrics.md", b.String())
	allDocumented(t, slices.Concat(observed, acted))
}

// allDocumented finds the names of metrics, and beginnings of names, in the code:
// those of a collector that is not listed above would be missing.
func allDocumented(t *testing.T, listed []metric) {
	t.Helper()
	for _, lit := range literals(t, "exporter", "actuator") {
		if !regexp.MustCompile(`^(gpu|laxity_(exporter|actuator))_[a-z_]+$`).MatchString(lit.text) {
			continue
		}
		if !slices.ContainsFunc(listed, func(m metric) bool { return strings.HasPrefix(m.name, lit.text) }) && !notMetrics[lit.text] {
			t.Errorf("%s: %s is in no collector that docs/metrics_test.go lists: add its collector there", lit.at, lit.text)
		}
	}
}

// notMetrics look like names of metrics and are other things.
var notMetrics = map[string]bool{}
