// Package program runs the programs that experiments measure beside each other: PyTorch's in containers, on a simulated
// GPU matrix multiplications in their place. A program waits for a signal to begin, and prints when each of its steps or
// requests began and ended.
package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
)

// Span is a request, from when it was due, or a step. Unix seconds.
type Span struct{ Began, Ended float64 }

// Kind is what a program does: a file of PyTorch, or on a simulated GPU so many kernels that multiply
// matrices of N×N (as large as an H200 would need them), again after a gap. Resident: they are copied to
// the GPU once, and no result is copied back. It ends after so many Steps, 0: never. Holds: bytes of GPU
// memory that it holds besides.
type Kind struct {
	File       string
	N, Kernels int
	Gap        time.Duration
	Resident   bool
	Steps      int
	Holds      uint64
}

// Program is one in a container.
type Program struct {
	*tenant.Tenant // nil: not started
	kind           Kind
	spec           tenant.Spec
	begin, rest    string // the files that tell it
	runner         runner
}

// Program makes one, to be started. Its name tells it from others of that folder.
func (s *Set) Program(folder, name string, kind Kind, spec tenant.Spec) (*Program, error) {
	folder = filepath.Join(s.dir, folder)
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
		return nil, err
	}
	p := &Program{kind: kind, spec: spec, runner: s.runner, begin: filepath.Join(folder, name), rest: filepath.Join(folder, name+".rest")}
	p.spec.Env = append(slices.Clone(spec.Env), "LAXITY_BEGIN="+p.begin, "LAXITY_REST="+p.rest)
	return p, nil
}

// folder is mounted into its container.
func (p *Program) folder() string { return filepath.Dir(p.begin) }

// Tell lets the program begin. The file appears with its content.
func (p *Program) Tell() error {
	draft := p.begin + ".draft"
	if err := os.WriteFile(draft, fmt.Appendf(nil, "%.6f\n", Unix(time.Now())), 0o644); err != nil { //nolint:gosec // a container reads it
		return err
	}
	return os.Rename(draft, p.begin)
}

// Rest lets a program that calls rest() stand after its present step, with its context.
func (p *Program) Rest() error { return os.WriteFile(p.rest, nil, 0o644) } //nolint:gosec // a container looks for it

// Resume ends a rest.
func (p *Program) Resume() error {
	if err := os.Remove(p.rest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Spans returns what is over so far, in order.
func (p *Program) Spans(ctx context.Context) ([]Span, error) { return p.runner.spans(ctx, p) }

// Remove removes its container, if there is one. It may be called again.
func (p *Program) Remove() error {
	if p.Tenant == nil {
		return nil
	}
	return p.Tenant.Remove()
}

// Unix is a time in Unix seconds.
func Unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

const (
	// atOnce is how many containers the engine is asked for at a time.
	atOnce = 8
	// startLimit is how long a program may take to wait: PyTorch alone takes seconds.
	startLimit = 2 * time.Minute
)

// StartAll starts programs, and returns when all of them wait to be told to begin.
func StartAll(ctx context.Context, programs []*Program) error {
	group, starting := errgroup.WithContext(ctx) // which ends with group.Wait
	group.SetLimit(atOnce)
	for _, p := range programs {
		group.Go(func() (err error) {
			p.Tenant, err = p.runner.start(starting, p)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, p := range programs {
		if err := bench.Until(ctx, startLimit, func() (bool, error) { return p.runner.waits(ctx, p) }); err != nil {
			return fmt.Errorf("%s is not ready: %w", p.Name, err)
		}
	}
	return nil
}

// RemoveAll removes the containers of programs. It may be called again.
func RemoveAll(programs []*Program) error {
	var group errgroup.Group
	for _, p := range programs {
		group.Go(p.Remove)
	}
	return group.Wait()
}

// Warm waits until each of these programs has taken three steps. bench.ErrTooLate: one has not
// within the limit; it may be held.
func Warm(ctx context.Context, limit time.Duration, programs []*Program) error {
	return bench.Until(ctx, limit, func() (bool, error) {
		for _, p := range programs {
			if spans, err := p.Spans(ctx); err != nil || len(spans) < 3 {
				return false, err
			}
		}
		return true, nil
	})
}
