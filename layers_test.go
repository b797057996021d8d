// Package laxity_test checks the rules of the house: which package may import which
// (layers_test.go), that each imports what its comment says (claims_test.go), and that pure
// ones are (pure_test.go). The rules stand here, so that breaking one breaks the build.
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
	ImportPath, Dir   string
	Standard          bool
	GoFiles, CgoFiles []string
	Imports, Deps     []string
	// TestImports are what its tests import.
	TestImports, XTestImports []string
}

func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func list(t *testing.T) (ours []pkg, standard map[string]bool) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,CgoFiles,Imports,Deps,TestImports,XTestImports", "./...")
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

// forTests holds where the name says that it serves tests: exporter/device/devicetest.
func forTests(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool {
		return strings.HasSuffix(part, "test") && part != "selftest" // which programs run at their start
	}) || path == "internal/chromium"
}

// enforcers are siblings: each carries out one thing, and none knows another. What two of
// them need is in a package of its own: proc, stop.
var enforcers = []string{"actuator/enforce/channels", "actuator/enforce/checkpoint", "actuator/enforce/containerd", "actuator/enforce/crio", "actuator/enforce/docker", "actuator/enforce/memory"}

// forbidden says why one package of ours must not import another; "" if it may.
func forbidden(from, to string) string {
	sibling := func(path string) int {
		return slices.IndexFunc(enforcers, func(e string) bool { return within(path, e) })
	}
	switch {
	case within(from, "exporter") && within(to, "actuator"):
		return "the exporter observes and never knows the actuator"
	case within(from, "actuator") && within(to, "exporter") && to != "exporter/task":
		return "the actuator borrows only exporter/task"
	case within(from, "internal") && !within(to, "internal"):
		return "internal packages are leaves"
	case within(to, "bench") && !within(from, "bench") && !within(from, "cmd"):
		return "what is measured knows nothing of the experiments"
	case within(to, "cmd") && !within(from, "cmd"):
		return "programs are on top"
	case sibling(from) >= 0 && sibling(to) >= 0 && sibling(from) != sibling(to) && !forTests(from):
		return "an enforcer knows no other one"
	case forTests(to) && !forTests(from):
		return "it is for tests"
	}
	return ""
}

func TestLayers(t *testing.T) {
	ours, _ := list(t)
	for _, p := range ours {
		for _, imp := range p.Imports {
			if to, isOurs := strings.CutPrefix(imp, module+"/"); isOurs {
				if why := forbidden(p.rel(), to); why != "" {
					t.Errorf("%s imports %s: %s", p.rel(), to, why)
				}
			}
		}
		// Tests may borrow from a side, not from above.
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			to := strings.TrimPrefix(imp, module+"/")
			if (within(to, "bench") || within(to, "cmd")) && !within(p.rel(), "bench") && !within(p.rel(), "cmd") {
				t.Errorf("a test of %s imports %s: what is measured knows nothing of the experiments, nor of programs", p.rel(), to)
			}
		}
	}
}

// Folders are rooms: between the folders of one folder imports run one way, so that a room can be
// read without those that use it. Go checks this for packages; a folder has several.
func TestFoldersImportOneWay(t *testing.T) {
	ours, _ := list(t)
	houses := map[string]map[string][]arrow{} // by folder: who imports whom among what lies in it
	for _, p := range ours {
		for _, imp := range p.Imports {
			if to, isOurs := strings.CutPrefix(imp, module+"/"); isOurs && !forTests(p.rel()) {
				house, from, into := rooms(p.rel(), to)
				if houses[house] == nil {
					houses[house] = map[string][]arrow{}
				}
				houses[house][from] = append(houses[house][from], arrow{into, p.rel() + " imports " + to})
			}
		}
	}
	for house, arrows := range houses {
		for from := range arrows {
			for _, out := range arrows[from] {
				if back := way(arrows, out.to, from, nil); back != nil {
					t.Errorf("%s: %s and %s import each other: %s; %s", house, from, out.to, out.because, strings.Join(back, "; "))
				}
			}
		}
	}
}

// arrow says that a room imports another one, and by which packages.
type arrow struct{ to, because string }

// rooms returns the deepest folder that has both packages, and the part of it that each is in;
// "." is the folder's own package.
func rooms(from, to string) (house, a, b string) {
	f, g := strings.Split(from, "/"), strings.Split(to, "/")
	n := 0
	for n < len(f) && n < len(g) && f[n] == g[n] {
		n++
	}
	part := func(path []string) string {
		if n == len(path) {
			return "."
		}
		return path[n]
	}
	return strings.Join(f[:n], "/"), part(f), part(g)
}

// way returns the imports by which one room reaches another, or nil.
func way(arrows map[string][]arrow, from, to string, seen []string) []string {
	for _, out := range arrows[from] {
		if out.to == to {
			return []string{out.because}
		}
		if !slices.Contains(seen, out.to) {
			seen = append(seen, out.to)
			if rest := way(arrows, out.to, to, seen); rest != nil {
				return append([]string{out.because}, rest...)
			}
		}
	}
	return nil
}

func TestRooms(t *testing.T) {
	for _, tc := range [][5]string{
		{"actuator/enforce/docker", "actuator/record", "actuator", "enforce", "record"},
		{"actuator/plan/ladder", "actuator/plan", "actuator/plan", "ladder", "."},
		{"cmd/laxity", "bench/tenant", "", "cmd", "bench"},
	} {
		if house, a, b := rooms(tc[0], tc[1]); house != tc[2] || a != tc[3] || b != tc[4] {
			t.Errorf("%s → %s: %q, %q, %q", tc[0], tc[1], house, a, b)
		}
	}
}

func TestForbidden(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		allowed  bool
	}{
		{"exporter/tracker", "exporter/task", true},
		{"exporter/tracker", "actuator/plan", false},
		{"exporter/device/sim/tenant", "bench/tenant", false},
		{"actuator", "exporter/task", true},
		{"actuator", "exporter/collector", false},
		{"internal/rm", "actuator/enforce", false},
		{"internal/rm", "internal/plain", true},
		{"actuator/enforce/memory", "actuator/enforce/stop", true},
		{"actuator/enforce/memory", "actuator/enforce/docker", false},
		{"actuator/enforce/checkpoint/libcuda", "actuator/enforce/checkpoint", true},
		{"actuator/enforce/checkpoint/checkpointtest", "actuator/enforce/docker", true},
		{"actuator/enforce/checkpoint", "actuator/enforce/enforcetest", false},
		{"cmd/laxity", "bench/tenant", true},
		{"bench/cost", "cmd/internal/view", false},
	} {
		if why := forbidden(tc.from, tc.to); (why == "") != tc.allowed {
			t.Errorf("%s imports %s: %q", tc.from, tc.to, why)
		}
	}
}

// The daemons run on every node: the PromQL engine belongs in the CLI and in the experiments alone.
func TestDaemonsAreLight(t *testing.T) {
	ours, _ := list(t)
	for _, p := range ours {
		if within(p.rel(), "cmd/laxity") || within(p.rel(), "cmd/laxity-bench") || within(p.rel(), "cmd/internal/evaluator") || within(p.rel(), "bench") || within(p.rel(), "test") {
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
