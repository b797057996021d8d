package laxity_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pure packages get time and facts as arguments and return what to do: they read no clock,
// no file and no socket, start no goroutine and change no variable of their package. They
// import the standard library and each other.
var pure = []string{
	"actuator/admission",
	"actuator/allocator",
	"actuator/allocator/facts",
	"actuator/arbiter/core",
	"actuator/config",
	"actuator/decision",
	"actuator/estimate",
	"actuator/lease",
	"actuator/page/timeline",
	"actuator/page/view",
	"actuator/placement",
	"actuator/plan",
	"actuator/plan/gang",
	"actuator/plan/greed",
	"actuator/plan/ladder",
	"actuator/policy",
	"actuator/profile",
	"actuator/record",
	"actuator/state",
	"bench/chart",
	"cmd/internal/event",
	"exporter/account",
	"exporter/device/sim/compute",
	"exporter/task",
	"exporter/tracker/core",
}

// lent are imports of pure packages that are not pure: what is taken of them is types.
var lent = map[string][]string{
	"actuator/arbiter/core": {"actuator/enforce"}, // what the ports say
	"actuator/state":        {"actuator/enforce"},
	"exporter/tracker/core": {"exporter/device", "exporter/container", "exporter/sensor"}, // what the ports say
}

// impure are packages of the standard library that reach out of the process, or the time
// of whoever calls them. net/netip, net/url and the like do not.
var impure = []string{"os", "net", "net/http", "syscall", "io/ioutil", "log", "runtime/debug", "plugin", "unsafe"}

// clocks are the functions of package time that read the clock or wait for it.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}

// logs are the functions of log/slog that write, or say where. Its levels and values are data.
var logs = []string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "Default", "SetDefault"}

// draws are the functions of math/rand whose source all of a process share.
var draws = []string{"Int", "IntN", "Intn", "N", "Uint64", "Float64", "ExpFloat64", "NormFloat64", "Perm", "Shuffle"}

// TestPurePackages holds each pure package to what pure means.
func TestPurePackages(t *testing.T) {
	ours, standard := list(t)
	left := slices.Clone(pure)
	for _, p := range ours {
		i := slices.Index(left, p.rel())
		if i < 0 {
			continue
		}
		left = slices.Delete(left, i, i+1)
		for _, imp := range p.Imports {
			to := strings.TrimPrefix(imp, module+"/")
			if !standard[imp] && !slices.Contains(pure, to) && !slices.Contains(lent[p.rel()], to) {
				t.Errorf("%s is pure: it may import the standard library and pure packages, not %s", p.rel(), to)
			}
		}
		fset := token.NewFileSet()
		for _, problem := range impurities(fset, p.files(t, fset)) {
			t.Errorf("%s is pure, but %s", p.rel(), problem)
		}
	}
	if len(left) > 0 {
		t.Errorf("there are no packages %v", left)
	}
}

// impurities says what the files of one package do that a pure one does not.
func impurities(fset *token.FileSet, files []*ast.File) (problems []string) {
	add := func(n ast.Node, format string, args ...any) {
		at := fset.Position(n.Pos())
		problems = append(problems, fmt.Sprintf("%s:%d ", path.Base(filepath.ToSlash(at.Filename)), at.Line)+fmt.Sprintf(format, args...))
	}
	// Imports are not followed: which variable a name means is known without them.
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: hollow{}, Error: func(error) {}}
	self, _ := config.Check("p", fset, files, info)

	for _, file := range files {
		for _, imp := range file.Imports {
			if to := strings.Trim(imp.Path.Value, `"`); slices.Contains(impure, to) || strings.HasPrefix(to, "os/") {
				add(imp, "imports %s", to)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				add(n, "starts a goroutine")
			case *ast.SelectorExpr:
				from, ok := n.X.(*ast.Ident)
				if !ok {
					break
				}
				name, isImport := info.Uses[from].(*types.PkgName)
				switch {
				case !isImport:
				case name.Imported().Path() == "time" && slices.Contains(clocks, n.Sel.Name):
					add(n, "calls time.%s", n.Sel.Name)
				case name.Imported().Path() == "log/slog" && slices.Contains(logs, n.Sel.Name):
					add(n, "writes to the log of all: slog.%s", n.Sel.Name)
				case strings.HasPrefix(name.Imported().Path(), "math/rand") && slices.Contains(draws, n.Sel.Name):
					add(n, "draws from a source that all share: rand.%s", n.Sel.Name)
				}
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if v := variable(info, self, left); v != "" && n.Tok != token.DEFINE {
						add(n, "changes the package's variable %s", v)
					}
				}
			case *ast.IncDecStmt:
				if v := variable(info, self, n.X); v != "" {
					add(n, "changes the package's variable %s", v)
				}
			}
			return true
		})
	}
	return problems
}

// variable returns the package's own variable that an assignment to e changes, in whole or
// in part; "" for another one.
func variable(info *types.Info, self *types.Package, e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			if v, ok := info.Uses[x].(*types.Var); ok && v.Parent() == self.Scope() {
				return v.Name()
			}
			return ""
		default:
			return ""
		}
	}
}

// hollow imports packages without anything in them.
type hollow struct{}

func (hollow) Import(p string) (*types.Package, error) {
	name := path.Base(p)
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(name) {
		name = path.Base(path.Dir(p))
	}
	pkg := types.NewPackage(p, name)
	pkg.MarkComplete()
	return pkg, nil
}

func TestImpurities(t *testing.T) {
	for _, tc := range []struct{ code, want string }{
		{`import "time"; func f(t time.Time) time.Duration { return t.Sub(time.Unix(0, 0)) }`, ""},
		{`import "time"; var x = time.Now()`, "calls time.Now"},
		{`import clock "time"; func f() { clock.Sleep(1) }`, "calls time.Sleep"},
		{`import "time"; var now = time.Now`, "calls time.Now"},
		{`import "os"; var x = os.Args`, "imports os"},
		{`import "log/slog"; var x = slog.LevelInfo`, ""},
		{`import "log/slog"; func f() { slog.Info("x") }`, "writes to the log of all: slog.Info"},
		{`import _ "net/http"`, "imports net/http"},
		{`import _ "net/netip"`, ""},
		{`func f() { go f() }`, "starts a goroutine"},
		{`var table = map[string]int{}; func f() int { return table["a"] }`, ""},
		{`var table = map[string]int{}; func f() { table["a"] = 1 }`, "changes the package's variable table"},
		{`var n int; func f() { n++ }`, "changes the package's variable n"},
		{`var n int; func f() { n := 1; n++; n = 2 }`, ""},
		{`var s struct{ a []int }; func f() { s.a[0] = 1 }`, "changes the package's variable s"},
		{`import "math/rand/v2"; func f(r *rand.Rand) int { return r.IntN(2) }`, ""},
		{`import "math/rand/v2"; func f() int { return rand.IntN(2) }`, "draws from a source that all share: rand.IntN"},
	} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "x.go", "package x; "+tc.code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(impurities(fset, []*ast.File{file}), "; ")
		if got = strings.TrimPrefix(got, "x.go:1 "); strings.Split(got, "; x.go")[0] != tc.want {
			t.Errorf("%s: %q, want %q", tc.code, got, tc.want)
		}
	}
}

// Where comments and READMEs call a package pure, TestPurePackages holds it to that.
func TestWhoIsCalledPure(t *testing.T) {
	var (
		inComment = regexp.MustCompile(`(?:^|[.] )Pure:|\bIt is pure\b|as a pure state machine|\b(?:decision|package) is pure\b`)
		inRow     = regexp.MustCompile("(?m)^\\| ((?:`[a-z/]+`(?:, )?)+) \\| (?:[^|]* )?pure\\b")
		inText    = regexp.MustCompile("`([a-z/]+)` \\(pure\\b")
		inLayout  = regexp.MustCompile(`(?m)^  ((?:[a-z/]+ +)+)PURE:`)
		quoted    = regexp.MustCompile("`([a-z/]+)`")
	)
	called := map[string]string{}
	ours, _ := list(t)
	for _, p := range ours {
		if inComment.MatchString(strings.Join(strings.Fields(p.comment(t)), " ")) {
			called[p.rel()] = "its comment"
		}
		readme, err := os.ReadFile(filepath.Join(p.Dir, "README.md"))
		if err != nil {
			continue
		}
		for _, m := range inRow.FindAllStringSubmatch(string(readme), -1) {
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				called[path.Join(p.rel(), name[1])] = p.rel() + "/README.md"
			}
		}
		for _, m := range inText.FindAllStringSubmatch(string(readme), -1) {
			// By its path from the package, or from the folder of the package.
			below := path.Join(p.rel(), m[1])
			if !slices.ContainsFunc(ours, func(q pkg) bool { return q.rel() == below }) {
				below = path.Join(path.Dir(p.rel()), m[1])
			}
			called[below] = p.rel() + "/README.md"
		}
	}
	page, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	room := ""
	for line := range strings.Lines(string(page)) {
		if top, _, ok := strings.Cut(line, "/ "); ok && !strings.HasPrefix(line, " ") {
			room = top
		}
		if m := inLayout.FindStringSubmatch(line); m != nil {
			for _, name := range strings.Fields(m[1]) {
				called[path.Join(room, name)] = "CONTRIBUTING.md"
			}
		}
	}
	for name, by := range called {
		if !slices.Contains(pure, name) {
			t.Errorf("%s calls %s pure: list it in pure_test.go, or say it otherwise", by, name)
		}
	}
	for _, name := range pure {
		if called[name] == "" && name != "exporter/task" {
			t.Errorf("nothing tells the reader of %s that it is pure", name)
		}
	}
}
