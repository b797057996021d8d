package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/reference"
)

var (
	linkOf    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingOf = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Every link between our pages leads somewhere.
func TestLinks(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(reference.Root(), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" && path != reference.Root():
			return fs.SkipDir // what git and our tools keep
		case filepath.Ext(path) != ".md":
			return nil
		}
		pages++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range linkOf.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			if to := filepath.Join(filepath.Dir(path), target); !leads(path, target, to, anchor) {
				t.Errorf("%s: the link %s leads nowhere", strings.TrimPrefix(path, reference.Root()+"/"), m[1])
			}
		}
		return nil
	})
	if err != nil || pages < 10 {
		t.Fatalf("%d pages, %v", pages, err)
	}
}

// leads reports whether there is such a file, and such a heading in it.
func leads(from, target, to, anchor string) bool {
	if target == "" {
		to = from
	}
	if _, err := os.Stat(to); err != nil {
		return false
	}
	if anchor == "" {
		return true
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return false
	}
	for _, m := range headingOf.FindAllStringSubmatch(string(text), -1) {
		slug := strings.ToLower(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(m[1], ""))
		if strings.ReplaceAll(slug, " ", "-") == anchor {
			return true
		}
	}
	return false
}
