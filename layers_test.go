// Package laxity_test checks the rules of the house: which package may import
// which. The rules stand here, so that breaking one breaks the build.
package laxity_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/laxity/laxity"

// pkg is what `go list -json` says of one package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func list(t *testing.T) (ours []pkg, standard map[string]bool) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	standard = map[string]bool{}
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		switch {
		case p.Standard:
			standard[p.ImportPath] = true
		case p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/"):
			ours = append(ours, p)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	if len(ours) < 5 {
		t.Fatalf("go list found only %d packages of ours", len(ours))
	}
	return ours, standard
}

func within(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

// pure packages import the standard library and the listed packages of ours.
var pure = map[string][]string{
	"exporter/task":      nil,
	"exporter/device":    nil,
	"exporter/container": {"exporter/task"},
	"exporter/sensor":    {"exporter/task"},
	"actuator/policy":    {"exporter/task"},
	"actuator/plan":      {"exporter/task", "actuator/policy"},
	// ladder has no need of package plan: it takes its place where slices can be set.
	"actuator/plan/ladder": {"exporter/task", "actuator/policy"},
	"actuator/estimate":    {"exporter/task"},
	"actuator/allocator":   nil,
	"actuator/placement":   {"exporter/task"},
	// decision writes a file, but what is shown are its records.
	"actuator/page/timeline": {"exporter/task"},
	"actuator/page/view":     {"exporter/task", "actuator/decision", "actuator/page/timeline", "actuator/placement"},
	"rules":                  nil,
	"dashboards":             nil,
}

func TestLayers(t *testing.T) {
	ours, standard := list(t)
	for _, p := range ours {
		if allowed, ok := pure[p.rel()]; ok {
			for _, imp := range p.Imports {
				if !standard[imp] && !slices.Contains(allowed, strings.TrimPrefix(imp, module+"/")) {
					t.Errorf("%s is pure: it may import the standard library and %v, not %s", p.rel(), allowed, imp)
				}
			}
		}
		for _, imp := range p.Imports {
			to, isOurs := strings.CutPrefix(imp, module+"/")
			if !isOurs {
				continue
			}
			from := p.rel()
			switch {
			case within(from, "exporter") && within(to, "actuator"):
				t.Errorf("%s imports %s: the exporter observes and never knows the actuator", from, to)
			case within(from, "actuator") && within(to, "exporter") && to != "exporter/task":
				t.Errorf("%s imports %s: the actuator borrows only exporter/task", from, to)
			case within(from, "internal") && (within(to, "exporter") || within(to, "actuator")):
				t.Errorf("%s imports %s: internal packages are leaves", from, to)
			}
		}
	}
}

// The daemons run on every node: the PromQL engine belongs in the CLI and in the experiments alone.
func TestDaemonsAreLight(t *testing.T) {
	ours, _ := list(t)
	for _, p := range ours {
		if within(p.rel(), "cmd/laxity") || within(p.rel(), "cmd/laxity-bench") || within(p.rel(), "cmd/internal/engine") || within(p.rel(), "bench") || within(p.rel(), "test") {
			continue
		}
		for _, dep := range p.Deps {
			if within(dep, "github.com/prometheus/prometheus") {
				t.Errorf("%s links %s: only cmd/laxity and cmd/laxity-bench may", p.ImportPath, dep)
				break
			}
		}
	}
}
