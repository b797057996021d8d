package program

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
)

// Set makes the programs of an experiment.
type Set struct {
	dir    string
	runner runner
}

// runner is what a GPU needs.
type runner interface {
	start(ctx context.Context, p *Program) (*tenant.Tenant, error)
	// waits reports whether the program is ready to be told to begin.
	waits(ctx context.Context, p *Program) (bool, error)
	spans(ctx context.Context, p *Program) ([]Span, error)
}

//go:embed begin.py
var beginning []byte

// Open makes a set whose files of PyTorch are those in text. They may import begin.py.
func Open(r *rig.Rig, text fs.FS) (*Set, error) {
	if r.GPU.Simulated() {
		return &Set{r.Dir, multiplications{r}}, nil
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, fmt.Errorf("python3 with PyTorch is needed: %w", err)
	}
	t := torch{r, python, filepath.Join(r.Dir, "programs")}
	if err := os.CopyFS(t.folder, text); err != nil {
		return nil, err
	}
	return &Set{r.Dir, t}, os.WriteFile(filepath.Join(t.folder, "begin.py"), beginning, 0o644) //nolint:gosec // a container reads it
}

// torch runs the host's PyTorch.
type torch struct {
	rig    *rig.Rig
	python string
	folder string
}

func (t torch) start(ctx context.Context, p *Program) (*tenant.Tenant, error) {
	spec := p.spec
	spec.Args = []string{t.python, filepath.Join(t.folder, p.kind.File)}
	return t.rig.Tenants.StartHost(ctx, spec, t.folder, p.folder())
}

func (t torch) waits(ctx context.Context, p *Program) (bool, error) {
	text, err := p.Stdout(ctx)
	if text != "" || err != nil {
		return text != "", err
	}
	if _, err := p.PID(ctx); err != nil { // it has ended: Wait says why
		return false, p.Wait(ctx)
	}
	return false, nil
}

func (t torch) spans(ctx context.Context, p *Program) ([]Span, error) {
	text, err := p.Stdout(ctx)
	if err != nil {
		return nil, err
	}
	return spansIn(text)
}

// spansIn reads what a program has printed. A last line may not be complete yet.
func spansIn(text string) (all []Span, err error) {
	for lines := json.NewDecoder(strings.NewReader(text)); ; {
		var one Span
		switch err := lines.Decode(&one); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("what the program prints is not understood: %w", err)
		case one.Began != 0: // else it only says that it waits
			all = append(all, one)
		}
	}
}

// multiplications are matrix multiplications on a simulated GPU.
type multiplications struct{ rig *rig.Rig }

func (m multiplications) start(ctx context.Context, p *Program) (*tenant.Tenant, error) {
	spec, folder := p.spec, p.folder()
	spec.Mounts = append(spec.Mounts, mount.Mount{Type: mount.TypeBind, Source: folder, Target: folder, ReadOnly: true})
	spec.Args = []string{"--n", strconv.Itoa(m.rig.GPU.N(p.kind.N)), "--kernels", strconv.Itoa(p.kind.Kernels),
		"--gap", strconv.FormatFloat(p.kind.Gap.Seconds(), 'g', -1, 64),
		"--repeat", strconv.Itoa(p.kind.Steps), "--alloc-extra", strconv.FormatUint(p.kind.Holds>>20, 10)}
	if p.kind.Resident {
		spec.Args = append(spec.Args, "--resident")
	}
	return m.rig.Tenants.Start(ctx, spec)
}

func (m multiplications) waits(context.Context, *Program) (bool, error) { return true, nil }

func (m multiplications) spans(ctx context.Context, p *Program) ([]Span, error) {
	events, err := p.Timeline(ctx)
	var all []Span
	began := 0.0
	for _, e := range events {
		switch e.Name {
		case "launch":
			began = Unix(e.Time)
		case "kernels_end":
			all = append(all, Span{began, Unix(e.Time)})
		}
	}
	return all, err
}
