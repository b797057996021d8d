package experiments

import (
	"bytes"
	"errors"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.." // of the repository

// A stored result whose code has changed since, but for comments and tests, is admitted in
// bench/results/older.txt, and only then: the page says it beside the figures.
func TestOlderCodeIsAdmitted(t *testing.T) {
	stored, err := Stored(os.DirFS("../results"))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range stored {
		if len(measures[name]) == 0 {
			t.Errorf("%s: measures.go does not say what it measures", name)
			continue
		}
		folders := measures[name]
		if slices.Contains(runWorkload, name) {
			folders = slices.Concat(folders, workload)
		}
		changed, err := changedSince(r.Commit, folders)
		switch {
		case err != nil:
			t.Logf("%s: it is not known what has changed since commit %s: %v", name, r.Commit, err)
		case changed != "" && r.Older == "":
			t.Errorf("%s measured other code than is here (%s has changed since commit %s): measure again, or add `%s: REASON` to bench/results/older.txt", name, changed, r.Commit, name)
		case changed == "" && r.Older != "":
			t.Errorf("%s measured the code that is here: remove it from bench/results/older.txt", name)
		}
		if !slices.Contains(runWorkload, name) || err != nil {
			continue
		}
		if changed, err = changedSince(r.Commit, workload); err == nil && changed != "" != strings.Contains(r.Older, workloadChanged) {
			t.Errorf("%s: %q has changed in %s since commit %s, and bench/results/older.txt says of it: %q; it says %q exactly where that program is another one", name, changed, workload, r.Commit, r.Older, workloadChanged)
		}
	}
}

// TestMeasuredFoldersAreThere: a folder that was renamed would never have changed.
func TestMeasuredFoldersAreThere(t *testing.T) {
	for name, folders := range measures {
		if _, ok := Find(name); !ok {
			t.Errorf("measures.go: no experiment %q", name)
		}
		for _, folder := range folders {
			if info, err := os.Stat(filepath.Join(root, folder)); err != nil || !info.IsDir() {
				t.Errorf("measures.go: %s measures %s, which is no folder (%v)", name, folder, err)
			}
		}
	}
	for _, e := range All() {
		if len(measures[e.Name]) == 0 {
			t.Errorf("measures.go does not say what %s measures", e.Name)
		}
	}
}

// changedSince names a file of the folders that is not what it was at a commit; "" if all are.
func changedSince(commit string, folders []string) (string, error) {
	args := append([]string{"diff", "--name-only", "--relative", commit, "--"}, folders...)
	out, err := git(args...)
	if err != nil {
		return "", err
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if !isSource(path) {
			continue
		}
		then, err := git("show", commit+":./"+path)
		if err != nil {
			return path, nil // it is new
		}
		now, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return path, nil // it is gone
		}
		if !slices.Equal(words(path, then), words(path, now)) {
			return path, nil
		}
	}
	return "", nil
}

func git(args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, errors.New(string(bytes.TrimSpace(failed.Stderr)))
	}
	return out, err
}

// isSource is whether what a file says may change what is measured: no test's file does, and no
// file of a package for tests, such as containertest. The package selftest is part of the product.
func isSource(path string) bool {
	folder := filepath.Base(filepath.Dir(path))
	forTests := strings.HasSuffix(folder, "test") && folder != "selftest"
	if forTests || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") {
		return false
	}
	return slices.Contains([]string{".go", ".c", ".h", ".cu", ".py", ".yml"}, filepath.Ext(path))
}

var comments = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// words are the tokens of a file without its comments.
func words(path string, text []byte) (all []string) {
	switch filepath.Ext(path) {
	case ".c", ".h", ".cu":
		return strings.Fields(string(comments.ReplaceAll(text, nil)))
	case ".go":
	default:
		return strings.Fields(string(text))
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(path, -1, len(text)), text, func(token.Position, string) {}, 0)
	for {
		_, tok, literal := s.Scan()
		if tok == token.EOF {
			return all
		}
		if tok == token.SEMICOLON {
			literal = ""
		}
		all = append(all, tok.String()+literal)
	}
}

func TestWordsLeaveOutComments(t *testing.T) {
	same := words("a.go", []byte("package a\n\n// B does.\nfunc B() {\n\treturn // at once\n}\n"))
	if !slices.Equal(same, words("a.go", []byte("package a\nfunc B() { return\n}\n"))) {
		t.Error("a comment makes a difference")
	}
	if slices.Equal(same, words("a.go", []byte("package a\nfunc C() { return\n}\n"))) {
		t.Error("a name makes none")
	}
	if !slices.Equal(words("a.c", []byte("int a; /* one\n * two */ // three\n")), words("a.c", []byte("int\na;"))) {
		t.Error("a comment in C makes a difference")
	}
}

func TestIsSource(t *testing.T) {
	for path, want := range map[string]bool{
		"exporter/container/labels.go":                      true,
		"internal/cudabpf/guard.c":                          true,
		"internal/rm/selftest/selftest.go":                  true,
		"exporter/container/labels_test.go":                 false,
		"exporter/container/containertest/containertest.go": false,
		"internal/rm/testdata/open.go":                      false,
		"exporter/README.md":                                false,
	} {
		if got := isSource(path); got != want {
			t.Errorf("%s: source %t, want %t", path, got, want)
		}
	}
}
