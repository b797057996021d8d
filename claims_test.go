package laxity_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A package may say in its comment what it imports: "It imports the standard library,
// exporter/task and golang.org/x/sys." Packages of ours go by their path below the module,
// others by the start of theirs or by a name below. "Of ours it imports …" says nothing of
// the others, and "pure packages" are those in pure_test.go. "It is a leaf" says that it imports none of ours.
var (
	claim   = regexp.MustCompile(`(?:^|[.:;] )([Ii]t|The package|[Oo]f ours it) imports ([^:;]+?)(?:\.(?: |$)|[:;]|$)`)
	leaf    = regexp.MustCompile(`\bis a leaf\b`)
	commas  = regexp.MustCompile(`, and |, | and `)
	another = regexp.MustCompile(`^[a-z0-9.-]+/[a-zA-Z0-9./-]+$`)
)

const standardLibrary = "the standard library"

// purePackages stands for any of those in pure_test.go.
const purePackages = "pure packages"

// named are the names that comments may use for what others wrote.
var named = map[string]string{
	"bbolt":              "go.etcd.io/bbolt",
	"chi":                "github.com/go-chi/chi",
	"cilium/ebpf":        "github.com/cilium/ebpf",
	"client_golang":      "github.com/prometheus/client_golang",
	"containerd/errdefs": "github.com/containerd/errdefs",
	"go-nvml":            "github.com/NVIDIA/go-nvml",
	"prometheus/common":  "github.com/prometheus/common",
	"the Docker client":  "github.com/docker",
}

// claims is what a package's comment says of its imports.
type claims struct {
	text       string
	ours       []string // paths below the module
	others     []string // what their paths begin with
	onlyOfOurs bool     // it says nothing of others
	anyPure    bool     // it names the pure ones as a whole
}

// readClaims finds what a comment says; nil where it says nothing, and the words that are
// no name of a package.
func readClaims(comment string, isOurs func(string) bool) (c *claims, unknown []string) {
	comment = strings.Join(strings.Fields(comment), " ")
	m := claim.FindStringSubmatch(comment)
	if m == nil {
		if leaf.MatchString(comment) {
			return &claims{text: leaf.FindString(comment), onlyOfOurs: true}, nil
		}
		return nil, nil
	}
	c = &claims{text: m[0], onlyOfOurs: strings.HasSuffix(m[1], "ours it")}
	list, _, _ := strings.Cut(m[2], " only")
	for _, name := range commas.Split(strings.TrimSuffix(list, " alone"), -1) {
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "only "), " for ")
		switch {
		case name == standardLibrary:
		case name == purePackages:
			c.anyPure = true
		case isOurs(name):
			c.ours = append(c.ours, name)
		case named[name] != "":
			c.others = append(c.others, named[name])
		case another.MatchString(name) && strings.Contains(name, "."):
			c.others = append(c.others, name)
		default:
			unknown = append(unknown, name)
		}
	}
	return c, unknown
}

// TestPackagesImportWhatTheySay: no package imports more than its comment says, nor says more
// than it imports.
func TestPackagesImportWhatTheySay(t *testing.T) {
	ours, standard := list(t)
	paths := map[string]bool{}
	for _, p := range ours {
		paths[p.rel()] = true
	}
	said := 0
	for _, p := range ours {
		c, unknown := readClaims(p.comment(t), func(name string) bool { return paths[name] })
		if len(unknown) > 0 {
			t.Errorf("the comment of %s names %q as imports: write the path of the package, the start of another module's, or a name listed in claims_test.go", p.rel(), unknown)
		}
		if c == nil {
			continue
		}
		said++
		for _, problem := range c.compare(p.Imports, standard) {
			t.Errorf("%s says %q, but %s", p.rel(), strings.TrimSpace(c.text), problem)
		}
	}
	if said < 40 {
		t.Errorf("only %d packages say what they import: is the pattern of this test still that of the comments?", said)
	}
}

// compare returns where imports and claims differ.
func (c *claims) compare(imports []string, standard map[string]bool) (problems []string) {
	used := map[string]bool{}
	for _, imp := range imports {
		if standard[imp] || imp == "C" {
			continue
		}
		if to, isOurs := strings.CutPrefix(imp, module+"/"); isOurs {
			used[to] = true
			if !slices.Contains(c.ours, to) && (!c.anyPure || !slices.Contains(pure, to)) {
				problems = append(problems, "it imports "+to)
			}
			continue
		}
		i := slices.IndexFunc(c.others, func(start string) bool { return within(imp, start) })
		if i >= 0 {
			used[c.others[i]] = true
		} else if !c.onlyOfOurs {
			problems = append(problems, "it imports "+imp)
		}
	}
	for _, name := range slices.Concat(c.ours, c.others) {
		if !used[name] {
			problems = append(problems, "it does not import "+name)
		}
	}
	return problems
}

func TestReadClaims(t *testing.T) {
	isOurs := func(name string) bool { return slices.Contains([]string{"a", "b/c"}, name) }
	for _, tc := range []struct {
		comment string
		imports []string
		want    []string
	}{
		{"Package x.", []string{module + "/a"}, nil},
		{"Package x. It imports the standard library only, so that\nothers may import it.", []string{"fmt", module + "/a"}, []string{"it imports a"}},
		{"Package x. It is a leaf.", []string{"go.etcd.io/bbolt", module + "/a"}, []string{"it imports a"}},
		{"It imports a, b/c and the\nstandard library.", []string{"fmt", module + "/a", module + "/b/c"}, nil},
		{"It imports a, b/c and golang.org/x/sys: more.", []string{module + "/a", "golang.org/x/sys/unix", "golang.org/x/term"},
			[]string{"it imports golang.org/x/term", "it does not import b/c"}},
		{"Pure: it is. Of ours it imports a.", []string{module + "/a", "golang.org/x/term"}, nil},
		{"It imports bbolt.", nil, []string{"it does not import go.etcd.io/bbolt"}},
	} {
		c, unknown := readClaims(tc.comment, isOurs)
		if len(unknown) > 0 {
			t.Errorf("%q: unknown %q", tc.comment, unknown)
		}
		var got []string
		if c != nil {
			got = c.compare(tc.imports, map[string]bool{"fmt": true})
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q with %v: %q, want %q", tc.comment, tc.imports, got, tc.want)
		}
	}
	if _, unknown := readClaims("It imports a and some friends.", isOurs); !slices.Equal(unknown, []string{"some friends"}) {
		t.Errorf("unknown = %q", unknown)
	}
}

// files parses the package's files, without its tests.
func (p pkg) files(t *testing.T, fset *token.FileSet) (files []*ast.File) {
	t.Helper()
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// comment is the package's own.
func (p pkg) comment(t *testing.T) string {
	t.Helper()
	var all []string
	for _, f := range p.files(t, token.NewFileSet()) {
		if f.Doc != nil {
			all = append(all, f.Doc.Text())
		}
	}
	return strings.Join(all, "\n")
}
