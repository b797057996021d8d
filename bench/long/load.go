package long

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

const (
	alive    = 6                // containers of the churn that live at once
	patience = 2 * time.Minute  // for the end of a container that computes seconds
	between  = 7 * time.Second  // from one wish of a person to the next
	wished   = 30 * time.Second // for a command of a person
)

// load is what runs beside Laxity.
type load struct {
	rig    *rig.Rig
	up     rig.Command
	random *rand.Rand
	churn  time.Duration
	add    func(bench.Row)

	residents []*tenant.Tenant
	numbered  int
}

// resident starts those that stay: a server with a deadline for each request, a trainer, and one with
// a share.
func (l *load) resident(ctx context.Context) error {
	for _, r := range []struct {
		name   string
		labels map[string]string
		args   []string
	}{
		{"server", map[string]string{task.LabelDeadline: "300ms", task.LabelRelease: string(task.ReleaseBusy)}, l.args(4096, 1, "--resident", "--repeat=0", "--gap=0.25")},
		{"trainer", map[string]string{task.LabelClass: string(task.ClassBatch)}, l.args(8192, 4, "--repeat=0")},
		{"sharer", map[string]string{task.LabelShare: "20%"}, l.args(8192, 2, "--repeat=0", "--gap=0.1")},
	} {
		t, err := l.rig.Tenants.Start(ctx, tenant.Spec{Name: l.name(r.name), Labels: r.labels, Args: r.args})
		if err != nil {
			return err
		}
		l.residents = append(l.residents, t)
	}
	return nil
}

func (l *load) args(n, kernels int, more ...string) []string {
	return append([]string{"--n", strconv.Itoa(l.rig.GPU.N(n)), "--kernels", strconv.Itoa(kernels)}, more...)
}

func (l *load) name(suffix string) string { return "laxity-bench-" + l.rig.Name + "-" + suffix }

// draw is the next container of the churn. Each has a name of its own, as in life.
func (l *load) draw() tenant.Spec {
	l.numbered++
	s := tenant.Spec{Name: l.name(strconv.Itoa(l.numbered)), Args: l.args(8192, 1+l.random.IntN(6))}
	deadline := fmt.Sprintf("%dms", 2000+l.random.IntN(18000))
	switch l.random.IntN(6) {
	case 0, 1:
		s.Labels = map[string]string{task.LabelDeadline: deadline}
	case 2:
		s.Labels = map[string]string{task.LabelClass: string(task.ClassBatch)}
	case 3:
		s.Labels = map[string]string{task.LabelDeadline: deadline, task.LabelGPUMemory: "8GiB"}
	case 4:
		s.Labels = map[string]string{task.LabelDeadline: deadline, task.LabelPause: "never"}
	}
	return s
}

// come lets containers come and go until ctx ends, a new one each churn at the most.
func (l *load) come(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	room := make(chan struct{}, alive)
	for bench.Pass(ctx, l.churn) == nil {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		spec := l.draw()
		all.Go(func() {
			defer func() { <-room }()
			began := time.Now()
			err := l.one(ctx, spec)
			if ctx.Err() != nil {
				return // it was cut off
			}
			row := bench.Row{"kind": "container", "seconds": time.Since(began).Seconds(), "failed": err != nil}
			if err != nil {
				row["error"] = err.Error()
			}
			l.add(row)
		})
	}
}

// one is the life of one container.
func (l *load) one(ctx context.Context, spec tenant.Spec) error {
	t, err := l.rig.Tenants.Start(ctx, spec)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return errors.Join(t.Wait(waiting), t.Remove())
}

// persons pause residents, release them, and change deadlines until ctx ends, with the CLI.
func (l *load) persons(ctx context.Context) {
	for i := 0; bench.Pass(ctx, between) == nil; i++ {
		who := l.residents[i%len(l.residents)].Name
		var errs []error
		errs = append(errs, l.laxity(ctx, "pause", who, "--actuator.url=http://"+l.up.Address))
		_ = bench.Pass(ctx, 2*time.Second)
		// Though ctx may be over: nobody stays paused.
		errs = append(errs, l.laxity(context.WithoutCancel(ctx), "release", who, "--actuator.url=http://"+l.up.Address),
			l.laxity(ctx, "deadline", l.residents[0].Name, fmt.Sprintf("%dms", 200+50*(i%5)), "--exporter.url=http://"+l.up.Exporter))
		if ctx.Err() != nil {
			return
		}
		row := bench.Row{"kind": "person", "failed": false}
		if err := errors.Join(errs...); err != nil {
			row["failed"], row["error"] = true, err.Error()
		}
		l.add(row)
	}
}

// laxity runs a command of the CLI as a person does.
func (l *load) laxity(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, wished)
	defer cancel()
	args = append(args, "--token.file="+filepath.Join(l.up.Dir, "state", "token"))
	if out, err := exec.CommandContext(ctx, l.up.Program, args...).CombinedOutput(); err != nil { //nolint:gosec // our own program
		return fmt.Errorf("laxity %s: %w: %s", args[0], err, out)
	}
	return nil
}
