// Package guard measures the memory guard: the cost of an allocation that the kernel passes, that a
// decider grants, and that is denied; and at which size a limit holds.
package guard

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
)

//go:embed src/alloc.c
var source []byte

const about = `A program allocates and frees 2 MiB of GPU memory in a loop (cuMemAlloc_v2, cuMemFree_v2) and times each
allocation: without a guard, guarded with room to spare (the kernel lets it pass), asked about and granted each time,
and denied each time. And it allocates 128 MiB after 128 MiB until it is refused, without and with a limit of 1 GiB.
Each run takes all ways, one program after another, in an order that changes. What a guard costs is the median over
the runs of the difference between the medians of two programs of the same run: one is the program without a guard.`

// Ways that are compared.
const (
	without = "without"
	passed  = "passed in the kernel"
	granted = "asked, granted"
	denied  = "asked, denied"
	limited = "limit 1 GiB"
)

var allWays = []string{without, passed, granted, denied, limited}

const (
	step  = 128 << 20
	block = 2 << 20
	limit = 1 << 30
)

// Experiment is the memory guard.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "guard", Title: "The memory guard: cost of an allocation, and where a limit holds", About: about, NeedsGPU: true,
		Settings: []bench.Setting{{Name: "runs", Means: "how often all ways are taken; 15", Part: true}},
		Portions: true, Run: run, Figures: figures, Table: table,
	}
}

// asking is a Decider that is asked about every call. Contexts are granted.
type asking struct{ memory.Answer }

func (asking) Observe(memory.Sight) {}

func (asking) Ceiling(string, string, uint64) uint64 { return 0 }

func (a asking) Decide(r memory.Request) memory.Answer {
	if r.Function == "cuCtxCreate" {
		return memory.Answer{}
	}
	return a.Answer
}

func run(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	runs, times := 15, 20000
	if env.Quick {
		runs, times = 1, 1000
	}
	if runs, err = env.Number("runs", 1, runs); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "laxity-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "alloc")
	if err := build(ctx, program, source); err != nil {
		return nil, err
	}
	d, err := exporter.OpenDevice(env.Device)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return env.Repeat(runs, func(number int) (found []bench.Row, err error) {
		for _, way := range bench.Turned(allWays, number) {
			env.Log("run %d: %s", number, way)
			n := times
			if way == granted || way == denied {
				n = times / 10
			}
			more, err := one(ctx, d, []string{program, "libcuda.so.1"}, way, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way, err)
			}
			for _, r := range more {
				r["run"] = number
			}
			found = append(found, more...)
		}
		return found, nil
	})
}

// build compiles a program.
func build(ctx context.Context, program string, source []byte) error {
	if err := os.WriteFile(program+".c", source, 0o600); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cc", "-O1", "-o", program, program+".c", "-ldl").CombinedOutput(); err != nil {
		return fmt.Errorf("cc: %w: %s", err, out)
	}
	return nil
}

// one runs the program in one way.
func one(ctx context.Context, d device.Device, program []string, way string, times int) (rows []bench.Row, err error) {
	reading, err := d.Read(ctx)
	if err != nil {
		return nil, err
	}
	gpu := reading.GPUs[0].UUID
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+gpu)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no shell takes it for suspended when the guard stops it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close(), cmd.Wait()) }()
	p := &talk{in: in, out: bufio.NewReader(out)}
	if err := p.await(nil, nil); err != nil { // it has its context
		return nil, err
	}
	if way != without {
		stop, err := watch(ctx, d, cmd.Process.Pid, gpu, way)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if way != limited {
		var median, p99 float64
		if err := p.ask(fmt.Sprintf("loop %d %d", times, block), &median, &p99); err != nil {
			return nil, err
		}
		rows = append(rows, bench.Row{"way": way, "median": median / 1e9, "p99": p99 / 1e9, "calls": times})
	}
	if way == limited || way == without {
		var count, none float64
		if err := p.ask(fmt.Sprintf("fill %d", step), &count, &none); err != nil {
			return nil, err
		}
		rows = append(rows, bench.Row{"way": way, "fits": count})
	}
	return rows, nil
}

// watch guards the program, and returns what ends that.
func watch(ctx context.Context, d device.Device, pid int, gpu, way string) (func() error, error) {
	o := memory.Options{
		Name:      fmt.Sprintf("laxity-bench-guard-%d", os.Getpid()),
		Container: func(p int) (string, bool, error) { return "bench", p == pid, nil },
		Usage:     exporter.UsageOf(d), Decider: memory.Limit{},
	}
	target := memory.Target{ID: "bench", PID: pid, GPUs: []string{gpu}}
	switch way {
	case granted:
		o.Decider = asking{memory.Answer{Verdict: memory.Grant}}
	case denied:
		o.Decider = asking{memory.Answer{Verdict: memory.Deny}}
	case limited:
		target.Limit = limit
	}
	g, err := memory.New(o)
	if err != nil {
		return nil, err
	}
	if err := g.Renew(time.Hour); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	stop := func() error {
		cancel()
		return errors.Join(<-ended, stop.Remove(o.Name))
	}
	g.Cover([]memory.Target{target})
	for deadline := time.Now().Add(10 * time.Second); len(g.Report()["bench"].PIDs) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("the program is not guarded: %+v", g.Report()["bench"]), stop())
		}
	}
	time.Sleep(300 * time.Millisecond) // the usage is read and the budget set
	return stop, nil
}

// talk is the program's input and output.
type talk struct {
	in  io.Writer
	out *bufio.Reader
}

func (t *talk) ask(line string, a, b *float64) error {
	if _, err := fmt.Fprintln(t.in, line); err != nil {
		return err
	}
	return t.await(a, b)
}

func (t *talk) await(a, b *float64) error {
	line, err := t.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the program is gone: %w", err)
	}
	if a == nil {
		return nil
	}
	var result int
	_, err = fmt.Sscan(line, &result, a, b)
	return err
}
