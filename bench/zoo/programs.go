package zoo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/laxity/laxity/internal/cc"
)

var (
	//go:embed src/animal.c
	animalSource []byte
	//go:embed src/runtime.cu
	runtimeSource []byte
	//go:embed src/torch_animal.py
	torchSource []byte
)

// build makes the programs that this machine can run, in the folder that containers
// see as programsIn. The driver's is a must; without nvcc or PyTorch their kinds are
// left out, with a word.
func (m *machine) build(ctx context.Context) error {
	folder := filepath.Join(m.dir, "programs")
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // tenants run as anybody
		return err
	}
	built, err := cc.Build(ctx, cc.CacheDir(), cc.Target{Name: "animal", Source: animalSource, Flags: []string{"-pthread", "-ldl"}})
	if err != nil {
		return err
	}
	if err := copyFile(built, filepath.Join(folder, "animal")); err != nil {
		return err
	}
	m.programs[animal] = []string{programsIn + "/animal"}
	if m.gpu.Simulated() {
		return nil
	}
	var wait sync.WaitGroup
	var withNvcc, withTorch error
	wait.Go(func() { withNvcc = buildRuntime(ctx, folder) })
	var python string
	wait.Go(func() { python, withTorch = findTorch(ctx, folder) })
	wait.Wait()
	if withNvcc != nil {
		m.env.Log("no programs of the CUDA runtime: %v", withNvcc)
	} else {
		m.programs[runtime] = []string{programsIn + "/runtime"}
	}
	if withTorch != nil {
		m.env.Log("no PyTorch programs: %v", withTorch)
	} else {
		m.programs[torch] = []string{python, programsIn + "/torch_animal.py"}
	}
	return ctx.Err()
}

func buildRuntime(ctx context.Context, folder string) error {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		if nvcc, err = exec.LookPath("/usr/local/cuda/bin/nvcc"); err != nil {
			return errors.New("nvcc is neither on PATH nor in /usr/local/cuda/bin")
		}
	}
	source := filepath.Join(folder, "runtime.cu")
	if err := os.WriteFile(source, runtimeSource, 0o644); err != nil { //nolint:gosec // tenants run as anybody
		return err
	}
	cmd := exec.CommandContext(ctx, nvcc, "-O2", "-arch=native", "-o", filepath.Join(folder, "runtime"), source)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nvcc: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

// findTorch returns the python3 that has PyTorch with CUDA. Asking also reads its
// files once, so that the first container need not.
func findTorch(ctx context.Context, folder string) (string, error) {
	if err := os.WriteFile(filepath.Join(folder, "torch_animal.py"), torchSource, 0o644); err != nil { //nolint:gosec // tenants run as anybody
		return "", err
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", err
	}
	if text, err := exec.CommandContext(ctx, python, "-c", "import torch; assert torch.cuda.is_available()").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", python, err, lastLine(string(text)))
	}
	return python, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755) //nolint:gosec // tenants run it
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
