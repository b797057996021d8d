package laxity_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// plainSkips are the tests that may skip on every machine, how many in a file, and why.
// Others skip by package needtest, which fails them where the machine must have what they
// need (LAXITY_REQUIRE), or with -short.
var plainSkips = map[string]struct {
	skips int
	why   string
}{
	"actuator/enforce/channels/channelstest/end.go": {1, "a rule of the suite that the subject cannot be led to break"},
	"actuator/journal/journal_test.go":              {1, "root is refused no folder"},
	"actuator/policy/policy_test.go":                {1, "rapid draws again"},
	"cmd/internal/channeldriver/nvidia_test.go":     {1, "its workload uses one GPU"},
	"cmd/laxity/main_test.go":                       {1, "what comes without a GPU, on a machine with one"},
	"exporter/container/proc_test.go":               {1, "the kernel gave the PID to somebody else"},
	"exporter/device/devicetest/cards.go":           {2, "what a subject of the suite cannot do, by its own word"},
	"exporter/device/devicetest/devicetest.go":      {7, "what a subject of the suite cannot do, by its own word"},
	"exporter/sensor/pidfd/pidfd_test.go":           {1, "the kernel gave the PID to somebody else, 300 times"},
	"internal/boltfile/boltfile_test.go":            {1, "the race detector cannot look at a damaged file"},
	"internal/cudaprobe/unwatched_test.go":          {1, "the time it is about went by"},
	"internal/priority/priority_test.go":            {1, "under nice there is nothing to compare with"},
	"internal/rm/linux_test.go":                     {1, "what comes without a GPU, on a machine with one"},
	"internal/rm/live_test.go":                      {1, "a tool that records a driver, by a flag"},
	"internal/rm/rmtest/tenant/tenant_test.go":      {1, "what comes without a GPU, on a machine with one"},
	"internal/rm/selftest/selftest_test.go":         {1, "what comes without a GPU, on a machine with one"},
	"internal/sandbox/sandbox_test.go":              {1, "the test itself runs in a sandbox"},
}

// TestSkipsSayWhatTheyNeed: who skips a test for want of something says of what, so that CI
// can tell it from what it must have.
func TestSkipsSayWhatTheyNeed(t *testing.T) {
	found := map[string]int{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || path == filepath.Join("internal", "needtest")):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if n := plainSkipsOf(file); n > 0 {
			found[filepath.ToSlash(path)] = n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, n := range found {
		if n > plainSkips[path].skips {
			t.Errorf("%s has %d calls of t.Skip: skip by needtest (needtest.Docker.Skip(t, …)), or list it here, with why", path, n)
		}
	}
	for path, listed := range plainSkips {
		if found[path] < listed.skips {
			t.Errorf("%s has %d calls of t.Skip, and %d are listed here", path, found[path], listed.skips)
		}
	}
}

// plainSkipsOf counts the calls of Skip, Skipf and SkipNow that neither name a need nor
// depend on -short.
func plainSkipsOf(file *ast.File) (n int) {
	var visit func(ast.Node) bool
	visit = func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt:
			if asksShort(node.Cond) {
				if node.Else != nil {
					ast.Inspect(node.Else, visit)
				}
				return false
			}
		case *ast.CallExpr:
			call, ok := node.Fun.(*ast.SelectorExpr)
			if ok && (call.Sel.Name == "Skip" || call.Sel.Name == "Skipf" || call.Sel.Name == "SkipNow") && !ofNeed(call.X) {
				n++
			}
		}
		return true
	}
	ast.Inspect(file, visit)
	return n
}

// asksShort holds for testing.Short() and nothing else: a condition that asks more hides a need.
func asksShort(cond ast.Expr) bool {
	call, ok := cond.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "Short"
}

// ofNeed holds for needtest.Docker and needtest.Need(shell).
func ofNeed(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		e = call.Fun
	}
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && from.Name == "needtest"
}

func TestPlainSkipsOf(t *testing.T) {
	for code, want := range map[string]int{
		`t.Skip()`:                                             1,
		`x.t.Skipf("%v", 1)`:                                   1,
		`needtest.Docker.Skip(t)`:                              0,
		`needtest.Need("a").Skipf(t)`:                          0,
		`if testing.Short() { t.Skip() }`:                      0,
		`if testing.Short() { t.Skip() } else { t.SkipNow() }`: 1,
		`if testing.Short() || os.Geteuid() != 0 { t.Skip() }`: 1,
		`if err != nil { t.Skip(err) }`:                        1,
		`s.Skip = true`:                                        0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; func f() { "+code+" }", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := plainSkipsOf(file); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}
