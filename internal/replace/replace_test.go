package replace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/laxity/laxity/internal/replace"
)

func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFile(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, mode := range []os.FileMode{0o600, 0o644} {
		if err := replace.File(path, []byte(mode.String()), mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if got, _ := os.ReadFile(path); err != nil || string(got) != mode.String() || info.Mode() != mode {
			t.Errorf("%q, %v, %v", got, info.Mode(), err)
		}
	}
	if names := left(t, dir); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
}

// What fails changes nothing and leaves nothing.
func TestFailureChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := replace.File(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if err := replace.FileBy(path, []byte("new"), 0o600, func(func() error) error { return no }); !errors.Is(err, no) {
		t.Errorf("error %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" || len(left(t, dir)) != 1 {
		t.Errorf("%q, left: %v", got, left(t, dir))
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replace.File(folder, []byte("new"), 0o600); err == nil || len(left(t, dir)) != 2 {
		t.Errorf("a folder: %v, left: %v", err, left(t, dir))
	}
	if err := replace.File(filepath.Join(dir, "none", "f"), nil, 0o600); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no folder: %v", err)
	}
}

// Whoever reads while others write sees one of them whole.
func TestReadersSeeAllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	content := func(n int) string { return strings.Repeat(string(rune('a'+n)), 10_000) }
	if err := replace.File(path, []byte(content(0)), 0o600); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for n := range 4 {
		writing.Go(func() {
			for range 10 {
				if err := replace.File(path, []byte(content(n)), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if got, err := os.ReadFile(path); err != nil || len(got) != 10_000 || strings.Trim(string(got), string(got[0])) != "" {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}
