// Package cc compiles small C sources that are embedded in Go packages: the stand-in libcuda and
// the CUDA workload. It imports the standard library only. At run time it needs a C compiler ($CC,
// cc or gcc), unless the target was compiled when the program was built (Prebuild).
package cc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNoCompiler means that this machine has no C compiler.
var ErrNoCompiler = errors.New("no C compiler found: install gcc, or set CC")

// Target is one file to build.
type Target struct {
	Name   string   // file name of the result
	Source []byte   // C
	Flags  []string // for compiler and linker; libraries come after the source
	// Prebuilt holds what Prebuild wrote for this source and machine, or nothing; may be nil.
	Prebuilt fs.FS
}

// Machine is what a target is compiled for; the zero value is the machine that this runs on.
type Machine struct {
	Arch     string // as runtime.GOARCH has it
	Compiler string // of C, for Arch
}

// prebuilt is the name of t's file in the output of Prebuild.
func (t Target) prebuilt(arch string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%q\x00", t.Name, t.Flags)
	sum.Write(t.Source)
	return t.Name + "-" + arch + "-" + hex.EncodeToString(sum.Sum(nil))[:12]
}

// Prebuild compiles t for the machine into dir, for a program to embed as Target.Prebuilt. It does
// nothing if that is done, and removes what it wrote there for another source or machine: a program
// embeds one. The same source and compiler make the same bytes.
func Prebuild(ctx context.Context, dir string, t Target, m Machine) error {
	if m.Arch == "" {
		m.Arch = runtime.GOARCH
	}
	name := t.prebuilt(m.Arch)
	if err := removeOthers(dir, t.Name, name); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
		return nil
	}
	compiler, err := find(m.Compiler)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "laxity-prebuild-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := compile(ctx, compiler, tmp, t); err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(tmp, t.Name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), content, 0o644)
}

// removeOthers removes what Prebuild wrote into dir for the target, but for the file that stays.
func removeOthers(dir, target, stays string) error {
	old, err := filepath.Glob(filepath.Join(dir, target+"-*-*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if filepath.Base(path) == stays {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// Build compiles t into its own folder below dir, named by the content, and returns the file's
// path. It reuses earlier builds of any process. Several processes may build at once.
func Build(ctx context.Context, dir string, t Target) (string, error) {
	if t.Prebuilt != nil {
		if content, err := fs.ReadFile(t.Prebuilt, t.prebuilt(runtime.GOARCH)); err == nil {
			return put(dir, t.prebuilt(runtime.GOARCH), t.Name, func(tmp string) error {
				return os.WriteFile(filepath.Join(tmp, t.Name), content, 0o755)
			})
		}
	}
	compiler, err := find("")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%s\x00%q\x00", compiler, t.Name, t.Flags)
	sum.Write(t.Source)
	return put(dir, t.Name+"-"+hex.EncodeToString(sum.Sum(nil))[:12], t.Name, func(tmp string) error {
		return compile(ctx, compiler, tmp, t)
	})
}

// put makes the folder home below dir, filled by fill, and returns the path of the file name in it.
// It reuses an existing one.
func put(dir, home, name string, fill func(tmp string) error) (string, error) {
	home = filepath.Join(dir, home)
	out := filepath.Join(home, name)
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
	if err := fill(tmp); err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { // tenants may run as any user
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

// find returns the path of a C compiler; asked is one that it must be, unless it is empty.
func find(asked string) (string, error) {
	if asked != "" {
		return exec.LookPath(asked)
	}
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
	if err := os.WriteFile(filepath.Join(dir, "source.c"), t.Source, 0o644); err != nil {
		return err
	}
	// What the compiler writes about the source does not depend on the folder.
	args := append([]string{"-std=gnu11", "-O2", "-g1", "-Wall", "-Wextra", "-fdebug-prefix-map=" + dir + "=.", "-o", t.Name, "source.c"}, t.Flags...)
	cmd := exec.CommandContext(ctx, compiler, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", t.Name, err, strings.TrimSpace(string(text)))
	}
	return nil
}
