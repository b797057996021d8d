package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/reference"
)

var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")

// What docs/security.md says is tested is: every test that it names exists.
func TestSecurityNamesRealTests(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := namesRealTests(t, "security.md", string(page)); n < 30 {
		t.Errorf("it names %d tests", n)
	}
}

// namesRealTests checks that every test that a page names exists, and returns how many it
// names.
func namesRealTests(t *testing.T, name, page string) int {
	t.Helper()
	there := map[string]bool{}
	err := filepath.WalkDir(reference.Root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				there[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := testName.FindAllStringSubmatch(page, -1)
	for _, test := range named {
		if !there[test[1]] {
			t.Errorf("%s names %s, and there is no such test", name, test[1])
		}
	}
	return len(named)
}
