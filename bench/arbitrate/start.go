package arbitrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/bench/tenant"
)

// atOnce is how many containers the engine is asked to make or remove at a time.
const atOnce = 8

// inParallel calls do for each job, some at a time.
func inParallel(jobs []*job, do func(*job) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(jobs))
	free := make(chan struct{}, atOnce)
	for i, j := range jobs {
		free <- struct{}{}
		all.Go(func() {
			errs[i] = do(j)
			<-free
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// signal lets tasks begin at their moments, however long their containers take to
// start: see the workload's LAXITY_BEGIN. It is a file in a folder that is given
// to the containers.
type signal struct{ folder string }

const (
	signalFolder = "/begin"
	signalFile   = "at"
	// signalLead is from the signal to the first moment: more than the programs
	// take to see it.
	signalLead = 300 * time.Millisecond
)

func (m *measurement) newSignal() (signal, error) {
	folder, err := os.MkdirTemp(m.Dir, "begin-")
	if err != nil {
		return signal{}, err
	}
	return signal{folder}, os.Chmod(folder, 0o755)
}

// for adds to a container's spec what lets it begin after the moment, seconds.
func (s signal) to(spec *tenant.Spec, after float64) {
	spec.Mounts = append(spec.Mounts, mount.Mount{Type: mount.TypeBind, Source: s.folder, Target: signalFolder, ReadOnly: true})
	spec.Env = append(spec.Env, "LAXITY_BEGIN="+filepath.Join(signalFolder, signalFile), fmt.Sprintf("LAXITY_AFTER=%.6f", after))
}

// give starts the clock. The file appears with its content.
func (s signal) give() error {
	at := float64(time.Now().Add(signalLead).UnixMicro()) / 1e6
	draft := filepath.Join(s.folder, "draft")
	if err := os.WriteFile(draft, fmt.Appendf(nil, "%.6f\n", at), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, filepath.Join(s.folder, signalFile))
}

// startTogether starts the jobs as fast as the engine can, and waits for their
// ends.
func startTogether(ctx context.Context, jobs []*job) {
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() { j.run(ctx) })
	}
	all.Wait()
}

// startOnTime starts the containers, lets the jobs begin at their moments, and
// waits for their ends.
func startOnTime(ctx context.Context, jobs []*job, begin signal) error {
	if err := inParallel(jobs, func(j *job) error { return j.tenant.Start(ctx) }); err != nil {
		return err
	}
	if err := begin.give(); err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() { j.err = j.tenant.Wait(ctx) })
	}
	all.Wait()
	return nil
}

func (j *job) run(ctx context.Context) {
	if j.err = j.tenant.Start(ctx); j.err == nil {
		j.err = j.tenant.Wait(ctx)
	}
}
