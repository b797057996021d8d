package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/reference"
)

var (
	pathOf     = regexp.MustCompile("`(\\.?[a-z][\\w.-]*/[\\w./*-]*|[\\w-]+\\.(?:go|md|yml)|\\.[\\w.-]+\\.yml)`")
	treeLine   = regexp.MustCompile(`(?m)^ {0,2}([a-z][\w./-]*/(?: [a-z][\w/]*/)*)  `)
	makeOf     = regexp.MustCompile("`make ([a-z-]+)`")
	makeTarget = regexp.MustCompile(`(?m)^([a-z-]+):.*## `)
)

// The recipes lead newcomers to files, tests and make targets that exist, and no make
// target is left out.
func TestContributingNamesWhatIsThere(t *testing.T) {
	page := read(t, "CONTRIBUTING.md")
	paths := pathOf.FindAllStringSubmatch(page, -1)
	if len(paths) < 40 {
		t.Errorf("it names %d paths", len(paths))
	}
	for _, m := range paths {
		if there, err := filepath.Glob(filepath.Join(reference.Root(), m[1])); err != nil || len(there) == 0 {
			t.Errorf("CONTRIBUTING.md names %s, and there is no such file (%v)", m[1], err)
		}
	}
	folders(t, page)
	if namesRealTests(t, "CONTRIBUTING.md", page) < 10 {
		t.Error("it names hardly a test")
	}

	targets := map[string]bool{"help": true, "clean": true, "install-plugin": true}
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = targets[m[1]] || strings.Contains(page, "\n| `make "+m[1]+"` |")
		if !targets[m[1]] {
			t.Errorf("CONTRIBUTING.md has no row `make %s`", m[1])
		}
	}
	for _, m := range makeOf.FindAllStringSubmatch(page, -1) {
		if _, ok := targets[m[1]]; !ok {
			t.Errorf("CONTRIBUTING.md names make %s, and the Makefile has no such target", m[1])
		}
	}
}

// folders checks the picture of the tree: a folder stands in the one that was named last
// without being indented.
func folders(t *testing.T, page string) {
	t.Helper()
	_, tree, _ := strings.Cut(page, "## The layout")
	tree, _, _ = strings.Cut(tree, "\n## ")
	lines := treeLine.FindAllStringSubmatch(tree, -1)
	if len(lines) < 25 {
		t.Errorf("the picture has %d lines with folders", len(lines))
	}
	top := ""
	for _, m := range lines {
		indented := strings.HasPrefix(m[0], "  ")
		for _, name := range strings.Fields(m[1]) {
			path := name
			if indented {
				path = top + name
			} else {
				top = name
			}
			if info, err := os.Stat(filepath.Join(reference.Root(), path)); err != nil || !info.IsDir() {
				t.Errorf("CONTRIBUTING.md shows %s, and there is no such folder", path)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(reference.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
