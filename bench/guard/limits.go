package guard

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/device"
)

const aboutLimits = `A program in a container asks for 128 MiB again and again until it is refused; it stops by itself at 4 GiB in each
process. The limit is 1 GiB, or 3 GiB for 3 processes together, contexts included. The program runs without and
with the memory guard at the same time, in two containers. Held is the most that the device reported for the container.
A program went on if it could use memory again after it had freed some, step by step (PyTorch: with
torch.cuda.empty_cache()). Freed is how many steps that took, and obstacle is what last prevented it. The guard works
alone: no container is paused for exceeding a limit. Cost: a program trains in a container while the guard is attached to
it (limit 64 GiB) and detached, 2 s each, in turns. The time of a way is the median of its turns' medians; what the guard
adds is the median of what each turn with it takes more than the turn before it, with quartiles. hami-core, if its library
is given, is HAMi-core with the same limits, preloaded into the program, which then runs while no other does; what training
pays is measured with a process for each way, too, because a library cannot be taken out of one.`

var (
	//go:embed src/steps.c
	stepsC []byte
	//go:embed src/steps.py
	stepsPython []byte
	//go:embed src/train.py
	trainPython []byte
)

// Limits is the experiment of P5 for every way to get memory.
func Limits() bench.Experiment {
	return bench.Experiment{
		Name: "limits", Title: "Limits of GPU memory, by how a program allocates (P5)", About: aboutLimits, NeedsGPU: true,
		Settings: []bench.Setting{
			{Name: hamiCore, Means: "path of HAMi-core's libvgpu.so; without it that way is left out", Part: true},
			{Name: hamiCore + "-build", Means: "HAMi-core's public commit, and what was changed to build it"},
		},
		Run: runLimits, Figures: limitFigures, Table: limitTable,
	}
}

const guarded = "laxity"

// subject is a way to get memory.
type subject struct {
	name      string
	how       string // of steps.c; empty: PyTorch
	env       string // of PyTorch's allocator
	processes int
}

func (s subject) limit() uint64 { return uint64(s.processes) * limit }

// most is where each process stops by itself, bytes.
const most = 4 << 30

const allocatorSetting = "PYTORCH_CUDA_ALLOC_CONF="

var subjects = []subject{
	{"cuMemAlloc", "plain", "", 1},
	{"cuMemAllocAsync, a pool", "pool", "", 1},
	{"cuMemCreate, mapped", "map", "", 1},
	{"managed memory", "managed", "", 1},
	{"CUDA graph, captured", "captured", "", 1},
	{"CUDA graph, nodes by hand", "nodes", "", 1},
	{"3 processes by fork", "plain", "", 3},
	{"PyTorch", "", "", 1},
	{"PyTorch, expandable_segments:True", "", allocatorSetting + "expandable_segments:True", 1},
	{"PyTorch, backend:cudaMallocAsync", "", allocatorSetting + "backend:cudaMallocAsync", 1},
	{"PyTorch, 3 processes by spawn", "", "", 3},
}

// caseTime bounds one subject.
const caseTime = 25 * time.Second

// bed is what the subjects run on.
type bed struct {
	env    bench.Env
	dir    string
	python string
	device device.Device
	gpu    string
	runner *tenant.Runner
	guard  *memory.Guard
	of     func(pid int) (id string, ok bool, err error) // the container of a process
	hami   hami
	mu     sync.Mutex
	made   int
}

func runLimits(ctx context.Context, env bench.Env) (rows []bench.Row, err error) {
	b := &bed{env: env, of: container.Proc("/proc").OfPID}
	if b.hami, err = parseHAMi(env); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "laxity-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	if b.device, err = exporter.OpenDevice(env.Device); err != nil {
		return nil, err
	}
	defer b.device.Close()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	if b.runner, err = tenant.New(ctx, tenant.Options{Name: fmt.Sprintf("limits-%d", os.Getpid())}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.runner.Close()) }()
	stop, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for i, s := range subjects {
		env.Log("%d of %d: %s", i+1, len(subjects), s.name)
		rows = append(rows, b.together(ctx, s, without, guarded)...)
		if b.hami != "" { // it learns its own memory from what the whole card's becomes: nobody else may begin
			rows = append(rows, b.together(ctx, s, hamiCore)...)
		}
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
	}
	return append(rows, b.costs(ctx)...), ctx.Err()
}

// prepare builds the programs and finds GPU and Python.
func (b *bed) prepare(ctx context.Context) error {
	reading, err := b.device.Read(ctx)
	if err != nil {
		return err
	}
	b.gpu = reading.GPUs[0].UUID
	if err := build(ctx, filepath.Join(b.dir, "steps"), stepsC); err != nil {
		return err
	}
	if b.python, err = exec.LookPath("python3"); err != nil {
		return fmt.Errorf("python3 with PyTorch is needed: %w", err)
	}
	for name, text := range map[string][]byte{"steps.py": stepsPython, "train.py": trainPython} {
		if err := os.WriteFile(filepath.Join(b.dir, name), text, 0o644); err != nil { //nolint:gosec // the container's user reads it
			return err
		}
	}
	return os.Chmod(b.dir, 0o755) //nolint:gosec // so does its folder's
}

// open begins to guard, nobody as yet.
func (b *bed) open(ctx context.Context) (end func() error, err error) {
	o := memory.Options{Name: fmt.Sprintf("laxity-bench-limits-%d", os.Getpid()), Container: b.of, Usage: exporter.UsageOf(b.device), Decider: memory.Limit{}}
	if b.guard, err = memory.New(o); err != nil {
		return nil, err
	}
	if err := b.guard.Renew(time.Hour); err != nil {
		return nil, errors.Join(err, b.guard.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.guard.Run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-ended, stop.Remove(o.Name))
	}, nil
}

// together runs a subject in several ways at the same time.
func (b *bed) together(ctx context.Context, s subject, ways ...string) []bench.Row {
	rows := make([]bench.Row, len(ways))
	var wait sync.WaitGroup
	for i, way := range ways {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, caseTime)
			defer cancel()
			rows[i] = newRow(s, way)
			if err := b.step(ctx, s, rows[i]); err != nil {
				rows[i]["error"] = err.Error()
				b.env.Log("%s, %s: %v", s.name, way, err)
			}
		})
	}
	wait.Wait()
	return rows
}

func newRow(s subject, way string) bench.Row {
	return bench.Row{
		"way": way, "subject": s.name, "limit": float64(s.limit()), "processes": s.processes,
		"granted": 0, "held": 0, "answered": 0, "refused": 0, "freed": 0, "on": 0, "denied": 0, "failed_open": 0,
	}
}

// step runs a subject in one way, and fills in its row.
func (b *bed) step(ctx context.Context, s subject, row bench.Row) error {
	program := []string{filepath.Join(b.dir, "steps"), "libcuda.so.1", s.how}
	if s.how == "" {
		program = []string{b.python, filepath.Join(b.dir, "steps.py")}
	}
	program = append(program, strconv.Itoa(step), strconv.Itoa(most), strconv.Itoa(s.processes))
	t, pid, err := b.start(ctx, program, row.Str("way"), s.limit(), s.env)
	if err != nil {
		return err
	}
	defer t.Remove() //nolint:errcheck // the runner removes it again
	return b.follow(ctx, s, running{t.ID, pid, t.Wait, t.Stdout}, row)
}

// running is a program that runs.
type running struct {
	id     string // of its container
	pid    int
	wait   func(context.Context) error
	output func(context.Context) (string, error)
}

// follow waits for a subject's end, guarded if its row says so.
func (b *bed) follow(ctx context.Context, s subject, r running, row bench.Row) error {
	if row.Str("way") == guarded {
		b.guard.Cover([]memory.Target{{ID: r.id, PID: r.pid, GPUs: []string{b.gpu}, Limit: s.limit()}})
		defer b.guard.Cover(nil)
	}
	looking, stop := context.WithCancel(ctx)
	held := make(chan uint64, 1)
	go func() { held <- mostHeld(looking, b.device, r.id, b.of) }()
	waited := r.wait(ctx)
	stop()
	row["held"] = float64(<-held)
	if row.Str("way") == guarded {
		report := b.guard.Report()[r.id]
		row["denied"], row["failed_open"] = float64(report.Denied), float64(report.FailedOpen)
	}
	// What a hanging program has said is known all the same.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	text, err := r.output(after)
	return errors.Join(waited, err, parseSteps(text, s.processes, row))
}

// start starts a program in a container. It does not begin before it is covered:
// its first call of the driver comes later than that by far. HAMi-core has its limit from the start.
func (b *bed) start(ctx context.Context, program []string, way string, limit uint64, env ...string) (t *tenant.Tenant, pid int, err error) {
	b.mu.Lock()
	b.made++
	number := b.made
	b.mu.Unlock()
	spec, folders := tenant.Spec{Name: fmt.Sprintf("laxity-bench-limits-%d-%d", os.Getpid(), number)}, []string{b.dir}
	env = append([]string{"CUDA_VISIBLE_DEVICES=" + b.gpu, "TMPDIR=/dev/shm", "PYTHONDONTWRITEBYTECODE=1"}, env...)
	// The shell waits, so that the container is known before the program begins.
	spec.Args = append([]string{"/bin/sh", "-c", `sleep 0.3; exec "$@"`, "sh"}, program...)
	if way == hamiCore {
		if spec.Mounts, err = b.hami.mounts(filepath.Join(b.dir, fmt.Sprint("hami-", number))); err != nil {
			return nil, 0, err
		}
		env, folders = append(env, b.hami.env(limit)...), append(folders, b.hami.folder())
	}
	spec.Env = nonempty(env)
	if t, err = b.runner.StartHost(ctx, spec, folders...); err != nil {
		return nil, 0, err
	}
	if pid, err = t.PID(ctx); err != nil {
		return nil, 0, errors.Join(err, t.Remove())
	}
	return t, pid, nil
}

func nonempty(all []string) (some []string) {
	for _, s := range all {
		if s != "" {
			some = append(some, s)
		}
	}
	return some
}

// mostHeld is the most that a container was seen to hold until ctx ended, bytes.
func mostHeld(ctx context.Context, d device.Device, id string, of func(int) (string, bool, error)) (top uint64) {
	for ctx.Err() == nil {
		reading, err := d.Read(ctx)
		if err == nil {
			var held uint64
			for _, g := range reading.GPUs {
				for _, p := range g.Processes {
					if in, ok, err := of(p.PID); err == nil && ok && in == id {
						held += p.MemoryUsed
					}
				}
			}
			top = max(top, held)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return top
}
