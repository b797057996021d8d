package gang

import (
	"bytes"
	"context"
	_ "embed" // for the program
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/workload"
)

//go:embed ranks.py
var torchRanks []byte

// gpus is how many GPUs a job uses.
const gpus = 2

// Where jobs run.
const (
	inContainer = "container"
	inProcess   = "process"
)

// place is where jobs run, and the GPUs.
type place struct {
	dir    string
	gpu    *bench.GPU
	rig    *rig.Rig // nil: jobs are processes of this machine
	closes func() error
}

func open(ctx context.Context, env bench.Env, in string) (_ *place, err error) {
	if in == inContainer {
		r, err := rig.Open(ctx, env, "gang", gpus)
		if err != nil {
			return nil, err
		}
		return &place{dir: r.Dir, gpu: r.GPU, rig: r, closes: r.Close}, nil
	}
	p := &place{}
	if p.dir, err = os.MkdirTemp("", "laxity-bench-"); err != nil {
		return nil, err
	}
	p.closes = func() error { return os.RemoveAll(p.dir) }
	if p.gpu, err = env.OpenGPU(ctx, p.dir, gpus); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.closes = func() error { return errors.Join(p.gpu.Close(), os.RemoveAll(p.dir)) }
	return p, nil
}

func (p *place) close() error { return p.closes() }

// told is what a job says of itself, and is told: the file of ranks.c and ranks.py.
type told struct{ Steps, Wrong, Stop atomic.Uint64 }

const toldSize = 24

// job is one that runs.
type job struct {
	told   *told
	memory []byte
	first  int            // PID of its first process, on this machine
	tenant *tenant.Tenant // nil: it is a process
	exited chan struct{}  // of a process
	status error
	output bytes.Buffer
}

// start starts a job.
func (p *place) start(ctx context.Context, name string) (*job, error) {
	folder := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o777)); err != nil { //nolint:gosec // a container writes to it
		return nil, err
	}
	path := filepath.Join(folder, "told")
	if err := errors.Join(os.WriteFile(path, make([]byte, toldSize), 0o644), os.Chmod(path, 0o666)); err != nil { //nolint:gosec // a container writes to it
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	j := &job{}
	if j.memory, err = syscall.Mmap(int(f.Fd()), 0, toldSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
		return nil, err
	}
	j.told = (*told)(unsafe.Pointer(&j.memory[0]))
	program, args, err := p.command(folder, name)
	if err == nil && p.rig != nil {
		err = p.contain(ctx, j, folder, program, args)
	} else if err == nil {
		err = p.spawn(j, program, args)
	}
	if err != nil {
		return nil, errors.Join(err, j.remove())
	}
	return j, nil
}

// command is the program of a job.
func (p *place) command(folder, name string) (program string, args []string, err error) {
	path := filepath.Join(folder, "told")
	if p.gpu.Simulated() {
		if program, err = workload.BuildRanks(""); err != nil {
			return "", nil, err
		}
		args = []string{"--gpus", strconv.Itoa(gpus), "--kernel", "0.003", "--shared", path}
		if name == processes {
			args = append(args, "--processes")
		}
		return program, args, nil
	}
	if program, err = exec.LookPath("python3"); err != nil {
		return "", nil, fmt.Errorf("python3 with PyTorch is needed: %w", err)
	}
	script := filepath.Join(folder, "ranks.py")
	return program, []string{script, name, path}, os.WriteFile(script, torchRanks, 0o644) //nolint:gosec // a container reads it
}

func (p *place) contain(ctx context.Context, j *job, folder, program string, args []string) (err error) {
	spec := tenant.Spec{Name: "laxity-bench-" + p.rig.Name + "-" + filepath.Base(folder), Args: args,
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: folder, Target: folder}}}
	if p.gpu.Simulated() {
		spec.Program = program
		j.tenant, err = p.rig.Tenants.Start(ctx, spec)
	} else {
		spec.Args, spec.IPC = append([]string{program}, args...), "host" // NCCL shares memory between ranks
		j.tenant, err = p.rig.Tenants.StartHost(ctx, spec)
	}
	if err != nil {
		return err
	}
	if j.first, err = j.tenant.PID(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, j.said(ctx))
	}
	return nil
}

func (p *place) spawn(j *job, program string, args []string) error {
	c := exec.Command(program, args...) //nolint:noctx // remove ends it
	c.Stdout, c.Stderr = &j.output, &j.output
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Env = os.Environ()
	if p.gpu.Simulated() {
		library, err := cuda.Build("")
		if err != nil {
			return err
		}
		c.Env = append(c.Env, cuda.EnvSocket+"="+p.gpu.Socket, "LD_LIBRARY_PATH="+library)
	}
	if err := c.Start(); err != nil {
		return err
	}
	j.first, j.exited = c.Process.Pid, make(chan struct{})
	go func() {
		defer close(j.exited)
		j.status = c.Wait()
	}()
	return nil
}

// processes are all of the job's, its first one and what that started.
func (j *job) processes() (all []rm.Process) {
	parents := map[int]int{}
	folders, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range folders {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		text, err := os.ReadFile(f)
		_, rest, ok := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); err == nil && ok && len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if at != j.first {
				continue
			}
			if stat, ok := proc.ReadStat("/proc", pid); ok && !stat.Exiting {
				all = append(all, rm.Process{PID: pid, Start: stat.Start})
			}
			break
		}
	}
	return all
}

// ended is an error once the job's first process is gone.
func (j *job) ended() error {
	if stat, ok := proc.ReadStat("/proc", j.first); ok && !stat.Exiting {
		return nil
	}
	return errors.New("the job has ended")
}

// endLimit is how long it may take to end.
const endLimit = 30 * time.Second

// finish tells the job to end, and waits until it has; an error quotes what it said.
func (j *job) finish(ctx context.Context) error {
	j.told.Stop.Store(1)
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	if j.tenant != nil {
		return j.tenant.Wait(ctx)
	}
	select {
	case <-j.exited:
		if j.status != nil {
			return fmt.Errorf("%w: %s", j.status, j.said(ctx))
		}
		return nil
	case <-ctx.Done():
		return errors.New("the job does not end")
	}
}

// said is what the job printed, of a process only once it has ended.
func (j *job) said(ctx context.Context) string {
	if j.tenant != nil {
		_ = j.tenant.Signal(ctx, "KILL")
		if err := j.tenant.Wait(ctx); err != nil {
			return err.Error()
		}
		return ""
	}
	if j.exited == nil {
		return ""
	}
	_ = syscall.Kill(-j.first, syscall.SIGKILL)
	<-j.exited
	return strings.TrimSpace(j.output.String())
}

// remove ends the job and frees what it had. It may be called again.
func (j *job) remove() error {
	var errs []error
	if j.exited != nil {
		_ = syscall.Kill(-j.first, syscall.SIGKILL)
		<-j.exited
	}
	if j.tenant != nil {
		errs = append(errs, j.tenant.Remove())
	}
	if j.memory != nil {
		errs = append(errs, syscall.Munmap(j.memory))
		j.memory, j.told = nil, nil
	}
	return errors.Join(errs...)
}
