package cc_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/needtest"
)

// What was compiled when the program was built needs no compiler where it runs; another
// source does.
func TestPrebuilt(t *testing.T) {
	target := cc.Target{Name: "seven", Source: []byte("int main(void) { return 7; }\n")}
	embedded := t.TempDir()
	err := cc.Prebuild(t.Context(), embedded, target, cc.Machine{})
	if errors.Is(err, cc.ErrNoCompiler) {
		needtest.Compiler.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CC", "")
	t.Setenv("PATH", "")
	if _, err := cc.Build(t.Context(), t.TempDir(), target); !errors.Is(err, cc.ErrNoCompiler) {
		t.Fatalf("without what was built before: %v", err)
	}
	if err := cc.Prebuild(t.Context(), embedded, target, cc.Machine{}); err != nil {
		t.Errorf("what is done is done again: %v", err)
	}
	target.Prebuilt = os.DirFS(embedded)
	dir := t.TempDir()
	for range 2 { // the second uses the first
		path, err := cc.Build(t.Context(), dir, target)
		if err != nil {
			t.Fatal(err)
		}
		var code *exec.ExitError
		if err := exec.CommandContext(t.Context(), path).Run(); !errors.As(err, &code) || code.ExitCode() != 7 {
			t.Errorf("it ends with %v", err)
		}
	}
	target.Source = []byte("int main(void) { return 8; }\n")
	if _, err := cc.Build(t.Context(), dir, target); !errors.Is(err, cc.ErrNoCompiler) {
		t.Errorf("another source: %v; want a compiler", err)
	}
}

// A newer source takes the place of the older one.
func TestPrebuildKeepsOne(t *testing.T) {
	dir := t.TempDir()
	for _, source := range []string{"int main(void) { return 1; }\n", "int main(void) { return 2; }\n"} {
		err := cc.Prebuild(t.Context(), dir, cc.Target{Name: "x", Source: []byte(source)}, cc.Machine{})
		if errors.Is(err, cc.ErrNoCompiler) {
			needtest.Compiler.Skip(t, err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A release is reproducible: what it embeds does not depend on the folder or the time.
func TestPrebuildIsReproducible(t *testing.T) {
	target := cc.Target{Name: "libx.so", Source: []byte("int x(int n) { return n + 7; }\n"), Flags: []string{"-shared", "-fPIC"}}
	var builds [2][]byte
	for i := range builds {
		dir := t.TempDir()
		err := cc.Prebuild(t.Context(), dir, target, cc.Machine{})
		if errors.Is(err, cc.ErrNoCompiler) {
			needtest.Compiler.Skip(t, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		if builds[i], err = os.ReadFile(filepath.Join(dir, entries[0].Name())); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(builds[0], builds[1]) {
		t.Error("two builds of one source differ")
	}
}

// What was compiled for another machine does not stay: programs would embed both.
func TestPrebuildKeepsOneMachine(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "x-other-0123456789ab")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := cc.Prebuild(t.Context(), dir, cc.Target{Name: "x", Source: []byte("int main(void) { return 0; }\n")}, cc.Machine{})
	if errors.Is(err, cc.ErrNoCompiler) {
		needtest.Compiler.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Error("what was compiled for another machine is there:", err)
	}
}
