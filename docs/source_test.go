// Package docs_test keeps the documentation true: it makes the pages of
// docs/reference from the code, and compares what people wrote with it.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/reference"
)

// literal is a text in the code.
type literal struct{ at, text string }

// visit calls do with every file of Go code below the folders, tests left out.
func visit(t *testing.T, do func(path string, set *token.FileSet, file *ast.File), folders ...string) {
	t.Helper()
	set := token.NewFileSet()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(reference.Root(), folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(reference.Root(), path)
			do(filepath.ToSlash(rel), set, file)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func literals(t *testing.T, folders ...string) (all []literal) {
	t.Helper()
	visit(t, func(path string, set *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					all = append(all, literal{at: path + ":" + strconv.Itoa(set.Position(l.Pos()).Line), text: text})
				}
			}
			return true
		})
	}, folders...)
	return all
}
