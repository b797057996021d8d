package main

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// processors are the architectures that are released, with the C compiler that Debian has for each
// on a machine of another one. NVIDIA's libraries are called through cgo, so each needs one.
var processors = map[string]struct {
	machine elf.Machine
	cc, apt string
	deb     string
	rpm     string
}{
	"amd64": {elf.EM_X86_64, "x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross", "amd64", "x86_64"},
	"arm64": {elf.EM_AARCH64, "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", "arm64", "aarch64"},
}

// compiler is the C compiler for an architecture.
func compiler(arch string) (string, error) {
	p, known := processors[arch]
	switch {
	case !known:
		return "", fmt.Errorf("there is no release for %s: NVIDIA's driver is for amd64 and arm64", arch)
	case arch == runtime.GOARCH:
		return "gcc", nil
	}
	if _, err := exec.LookPath(p.cc); err != nil {
		return "", fmt.Errorf("%w (Debian and Ubuntu: apt-get install %s): without it the programs would see no GPU, so none are made", err, p.apt)
	}
	return p.cc, nil
}

// build puts the programs for arch into bin. What they embed is compiled for arch first.
func (r *release) build(ctx context.Context, arch, bin string) error {
	cc, err := compiler(arch)
	if err != nil {
		return err
	}
	const info = "github.com/prometheus/common/version"
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -X " + info + ".Version=" + r.version + " -X " + info + ".Revision=" + r.commit, "-o", bin + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, "go", "run", "./exporter/device/sim/prebuild", "--arch="+arch, "--cc="+cc),
		exec.CommandContext(ctx, "go", args...),
	} {
		c.Env = os.Environ()
		if c.Args[1] == "build" { // what runs here is built for this machine
			c.Env = append(c.Env, "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=1", "CC="+cc,
				"CGO_CFLAGS=-Wno-deprecated-declarations") // go-nvml's header marks what nobody here calls
		}
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// checkArch fails if a program is for another architecture, so that no package lies about it.
func checkArch(bin, arch string) error {
	for _, p := range programs {
		f, err := elf.Open(filepath.Join(bin, p))
		if err != nil {
			return err
		}
		machine := f.Machine
		if err := f.Close(); err != nil {
			return err
		}
		if machine != processors[arch].machine {
			return fmt.Errorf("%s is for %v", filepath.Join(bin, p), machine)
		}
	}
	return nil
}
