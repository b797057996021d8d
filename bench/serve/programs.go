package serve

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
)

// span is a request, from when it was due, or a step of a trainer. Unix seconds.
type span struct{ Began, Ended float64 }

// programs are what the containers run.
type programs interface {
	start(ctx context.Context, p *seat) (*tenant.Tenant, error)
	// waits reports whether the program is ready to be told to begin.
	waits(ctx context.Context, p *seat) (bool, error)
	// spans returns what is over so far, in order.
	spans(ctx context.Context, p *seat) ([]span, error)
}

// newPrograms are PyTorch's, on a simulated GPU the tenant's own.
func newPrograms(r *rig.Rig) (programs, error) {
	if r.GPU.Simulated() {
		return multiplications{r}, nil
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return nil, fmt.Errorf("python3 with PyTorch is needed: %w", err)
	}
	t := torch{r, python, filepath.Join(r.Dir, "programs")}
	if err := os.Mkdir(t.folder, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"begin.py", "server.py", "decode.py", "trainer.py"} {
		text, err := torchPrograms.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(t.folder, name), text, 0o644); err != nil { //nolint:gosec // a container reads it
			return nil, err
		}
	}
	return t, nil
}

//go:embed *.py
var torchPrograms embed.FS

// torch runs the host's PyTorch.
type torch struct {
	rig    *rig.Rig
	python string
	folder string
}

func (t torch) start(ctx context.Context, p *seat) (*tenant.Tenant, error) {
	spec := p.spec
	spec.Args = []string{t.python, filepath.Join(t.folder, string(p.role)+".py")}
	return t.rig.Tenants.StartHost(ctx, spec, t.folder, filepath.Dir(p.begin))
}

func (t torch) waits(ctx context.Context, p *seat) (bool, error) {
	text, err := p.Stdout(ctx)
	if text != "" || err != nil {
		return text != "", err
	}
	if _, err := p.PID(ctx); err != nil { // it has ended: Wait says why
		return false, p.Wait(ctx)
	}
	return false, nil
}

func (t torch) spans(ctx context.Context, p *seat) ([]span, error) {
	text, err := p.Stdout(ctx)
	if err != nil {
		return nil, err
	}
	return spansIn(text)
}

// spansIn reads what a program has printed. A last line may not be complete yet.
func spansIn(text string) (all []span, err error) {
	for lines := json.NewDecoder(strings.NewReader(text)); ; {
		var one span
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

// multiplications are matrix multiplications on a simulated GPU: a request of 0.9 ms,
// a step of 30 kernels of 3 ms. A token is a request that comes at once.
type multiplications struct{ rig *rig.Rig }

func (m multiplications) start(ctx context.Context, p *seat) (*tenant.Tenant, error) {
	n, kernels, gap := 2048, 30, "0"
	switch p.role {
	case server:
		n, kernels, gap = 1352, 1, "0.03"
	case decode:
		n, kernels = 1352, 1
	}
	spec, folder := p.spec, filepath.Dir(p.begin)
	spec.Mounts = append(spec.Mounts, mount.Mount{Type: mount.TypeBind, Source: folder, Target: folder, ReadOnly: true})
	spec.Args = []string{"--n", strconv.Itoa(m.rig.GPU.N(n)), "--kernels", strconv.Itoa(kernels), "--gap", gap, "--repeat", "0"}
	return m.rig.Tenants.Start(ctx, spec)
}

func (m multiplications) waits(context.Context, *seat) (bool, error) { return true, nil }

func (m multiplications) spans(ctx context.Context, p *seat) ([]span, error) {
	events, err := p.Timeline(ctx)
	var all []span
	began := 0.0
	for _, e := range events {
		switch e.Name {
		case "launch":
			began = unix(e.Time)
		case "kernels_end":
			all = append(all, span{began, unix(e.Time)})
		}
	}
	return all, err
}
