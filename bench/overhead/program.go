package overhead

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

//go:embed loop.py
var loop []byte

// startLimit is how long the programs may take to be ready: PyTorch alone takes some
// seconds.
const startLimit = 2 * time.Minute

// program is what the containers run.
type program struct {
	args   []string
	folder string // of its files, read-only in the container, at the same path
}

// writeProgram puts the program that takes these steps into a folder.
func writeProgram(folder, python string, steps []byte) (program, error) {
	p := program{args: []string{python, filepath.Join(folder, "loop.py")}, folder: folder}
	for name, text := range map[string][]byte{"loop.py": loop, "steps.py": steps} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil { //nolint:gosec // a container reads it
			return p, err
		}
	}
	return p, nil
}

// subject is the program, running in a container.
type subject struct {
	*tenant.Tenant
	release string
}

// startAll starts so many containers of each way to be watched, all at once: PyTorch
// takes its time. They wait until they are measured.
func (p program) startAll(ctx context.Context, runner *tenant.Runner, containers int) ([]subject, error) {
	all := make([]subject, containers*len(releases))
	group, ctx := errgroup.WithContext(ctx)
	for i := range all {
		group.Go(func() (err error) {
			all[i], err = p.start(ctx, runner, fmt.Sprint(i), releases[i%len(releases)])
			return err
		})
	}
	return all, group.Wait()
}

// start returns when the program waits.
func (p program) start(ctx context.Context, runner *tenant.Runner, name, release string) (subject, error) {
	t, err := runner.StartHost(ctx, tenant.Spec{
		Name:   fmt.Sprintf("laxity-bench-overhead-%d-%s", os.Getpid(), name),
		Args:   p.args,
		Labels: map[string]string{task.LabelRelease: release, task.LabelDeadline: "1s"},
	}, p.folder)
	if err != nil {
		return subject{}, err
	}
	s := subject{t, release}
	if err := s.await(ctx); err != nil {
		return s, errors.Join(err, s.Remove())
	}
	return s, nil
}

func (s subject) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Wait(ctx) }()
	for {
		if lines, err := s.said(ctx); err != nil || len(lines) > 0 {
			return err
		}
		select {
		case err := <-ended:
			return errors.Join(errors.New("the program ended before it was ready"), err)
		case <-ctx.Done():
			return fmt.Errorf("the program is not ready: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// steps are those of one kind.
type steps struct {
	Ready    bool // this is only the news that the program waits
	Loop     string
	Phase    int
	Launches float64      // in each step
	Steps    [][2]float64 // begin and end of each, seconds of CLOCK_MONOTONIC
}

// finish ends the program and returns the steps that it has taken.
func (s subject) finish(ctx context.Context) ([]steps, error) {
	if err := s.Signal(ctx, "TERM"); err != nil {
		return nil, err
	}
	if err := s.Wait(ctx); err != nil {
		return nil, err
	}
	lines, err := s.said(ctx)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	return lines[1:], nil
}

// said is what the program has printed.
func (s subject) said(ctx context.Context) (all []steps, err error) {
	text, err := s.Stdout(ctx)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(strings.NewReader(text)); ; {
		var one steps
		switch err := lines.Decode(&one); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("what the program prints is not understood: %w", err)
		}
		all = append(all, one)
	}
}
