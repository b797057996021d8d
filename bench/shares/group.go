package shares

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/task"
)

// step is that of all programs: so many multiplications of some 1.5 ms, on a simulated GPU, too.
func (s settings) step() program.Kind {
	return program.Kind{File: "worker.py", N: 1536, Kernels: s.kernels, Resident: true}
}

// asked are the shares, percent. The last one is idle in the second window.
var asked = []int{10, 30, 60}

// member is a program of a group.
type member struct {
	*program.Program
	who   string
	share float64 // 0–1
}

// newMember makes a program with a share of so many percent.
func (m *measurement) newMember(run int, group string, percent int) (member, error) {
	who := fmt.Sprintf("%d%%", percent)
	p, err := m.programs.Program(fmt.Sprintf("begin-%d-%s", run, group), who, m.how.step(), tenant.Spec{
		Name:   fmt.Sprintf("laxity-bench-shares-%d-%d-%s-%d", os.Getpid(), run, group, percent),
		Labels: map[string]string{task.LabelShare: who}, Env: []string{fmt.Sprintf("LAXITY_KERNELS=%d", m.how.kernels)},
	})
	return member{p, who, float64(percent) / 100}, err
}

// group are the containers that share the GPU by one way in one run.
type group struct {
	*measurement
	way     string
	members []member
}

func (m *measurement) newGroup(run int, way string) (*group, error) {
	g := &group{measurement: m, way: way}
	for _, percent := range asked {
		one, err := m.newMember(run, way, percent)
		if err != nil {
			return nil, err
		}
		g.members = append(g.members, one)
	}
	return g, nil
}

func (g *group) programs() (all []*program.Program) {
	for _, m := range g.members {
		all = append(all, m.Program)
	}
	return all
}

// The windows.
const (
	allWant = "all want it"
	oneIdle = "60 % idle"
	alone   = "lone"
)

// window is a time during which steps count.
type window struct {
	name     string
	from, to float64 // Unix seconds
}

// measure goes through both windows.
func (g *group) measure(ctx context.Context) (rows []bench.Row, err error) {
	defer func() { err = errors.Join(err, program.RemoveAll(g.programs())) }()
	stop := func() error { return nil }
	if g.way == laxity {
		if stop, err = g.Up(ctx, g.env, g.way); err != nil {
			return nil, err
		}
	}
	windows, err := g.windows(ctx)
	if err = errors.Join(err, stop()); err != nil {
		return nil, fmt.Errorf("way %s: %w", g.way, err)
	}
	var spans [][]program.Span
	for _, m := range g.members {
		found, err := m.Spans(ctx)
		if err != nil {
			return nil, fmt.Errorf("way %s, %s: %w", g.way, m.who, err)
		}
		spans = append(spans, found)
	}
	for _, w := range windows {
		rows = append(rows, rowsIn(w, g.way, g.members, spans)...)
	}
	return rows, nil
}

func (g *group) windows(ctx context.Context) (all []window, err error) {
	for _, m := range g.members {
		if err := m.Tell(); err != nil {
			return nil, err
		}
	}
	if err := program.Warm(ctx, g.how.warmup, g.programs()); err != nil {
		return nil, fmt.Errorf("not all of them take steps: %w", err)
	}
	for _, name := range []string{allWant, oneIdle} {
		if name == oneIdle {
			if err := g.members[len(g.members)-1].Rest(); err != nil {
				return nil, err
			}
		}
		w, err := pass(ctx, name, g.how.settle, g.how.duration)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// pass lets some time pass, and then a window.
func pass(ctx context.Context, name string, before, length time.Duration) (w window, err error) {
	if err := bench.Pass(ctx, before); err != nil {
		return w, err
	}
	w = window{name: name, from: program.Unix(time.Now())}
	err = bench.Pass(ctx, length)
	w.to = program.Unix(time.Now())
	return w, err
}

// said tells of rows as they are measured.
func said(rows []bench.Row) string {
	var all []string
	for _, r := range rows {
		what := fmt.Sprintf("%s %.1f %%", r["who"], 100*r.Num("part"))
		if r.Str("window") == alone {
			what = fmt.Sprintf("%s: %.4f ms", r["way"], 1000*r.Num("step_s"))
		} else if r.Str("who") == fmt.Sprintf("%d%%", asked[0]) {
			what = fmt.Sprintf("%s, %s (%.1f steps a second): %s", r["way"], r["window"], r.Num("all_per_s"), what)
		}
		all = append(all, what)
	}
	return strings.Join(all, ", ")
}
