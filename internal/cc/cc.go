// Package cc compiles small C sources that are embedded in Go packages: the
// stand-in libcuda and the CUDA workload. It imports the standard library only,
// and needs a C compiler at run time: $CC, or cc, or gcc.
package cc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoCompiler means that this machine has no C compiler.
var ErrNoCompiler = errors.New("no C compiler found: install gcc, or set CC")

// Target is one file to build.
type Target struct {
	Name   string   // of the file, as it is to be called
	Source []byte   // C
	Flags  []string // for compiler and linker; libraries come after the source
}

// Build compiles t into a folder of its own below dir, which is named by the
// content, and returns the file's path. What was built before, by anybody, is
// used again. Several processes may build at once.
func Build(ctx context.Context, dir string, t Target) (string, error) {
	compiler, err := find()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%s\x00%q\x00", compiler, t.Name, t.Flags)
	sum.Write(t.Source)
	home := filepath.Join(dir, t.Name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	out := filepath.Join(home, t.Name)
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := compile(ctx, compiler, tmp, t); err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { // tenants may run as anybody
		return "", err
	}
	if err := os.Rename(tmp, home); err != nil {
		if _, statErr := os.Stat(out); statErr != nil { // else another process was faster
			return "", err
		}
	}
	return out, nil
}

// CacheDir is where builds are kept between runs.
func CacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "laxity")
}

func find() (string, error) {
	for _, name := range []string{os.Getenv("CC"), "cc", "gcc"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

func compile(ctx context.Context, compiler, dir string, t Target) error {
	source := filepath.Join(dir, "source.c")
	if err := os.WriteFile(source, t.Source, 0o644); err != nil {
		return err
	}
	args := append([]string{"-std=gnu11", "-O2", "-g1", "-Wall", "-Wextra", "-o", filepath.Join(dir, t.Name), source}, t.Flags...)
	if text, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", t.Name, err, strings.TrimSpace(string(text)))
	}
	return nil
}
