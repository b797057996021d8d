package channels

import (
	"bytes"
	"context"
	_ "embed" // for the program
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/docker/docker/api/types/mount"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/rm"
)

//go:embed src/beats.c
var source []byte

//go:embed src/work.ptx
var kernel string

// buildProgram compiles beats.c, and returns its path. It needs a C compiler.
func buildProgram(ctx context.Context) (string, error) {
	text := append([]byte("#define PTX "+strconv.QuoteToASCII(kernel)+"\n"), source...)
	return cc.Build(ctx, cc.CacheDir(), cc.Target{Name: "beats", Source: text, Flags: []string{"-ldl"}})
}

// How a program ends when it is told to: as in beats.c.
const (
	finish     = 1 + iota // after the kernel that runs
	exit                  // by exit(), beside its kernel
	exitAtOnce            // by _exit()
	crash                 // by a fault
	destroy               // by cuCtxDestroy, then _exit()
)

// shared is struct shared of beats.c.
type shared struct {
	Ready, Stop, Beat, Result, Done, Launch, Micros, Direct, Launched atomic.Uint32
	_                                                                 uint32
	Began, Context, First                                             atomic.Uint64 // nanoseconds since boot
	Error                                                             [64]byte
}

const sharedSize = 4096

// endless is as many kernels as a program can count.
const endless = 1<<32 - 1

// subject is a container whose kernels show how far they are.
type subject struct {
	*tenant.Tenant
	*shared
	memory  []byte
	process rm.Process
}

// work is what a subject is to do.
type work struct {
	name    string
	labels  map[string]string
	kernel  time.Duration // how long each takes alone
	kernels uint32
	mib     int // device memory besides
}

// create makes a container that is not started.
func (m *measurement) create(ctx context.Context, w work) (*subject, error) {
	m.count++
	name := fmt.Sprintf("%s-%d", w.name, m.count)
	f, err := os.OpenFile(filepath.Join(m.folder, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := errors.Join(f.Chmod(0o666), f.Truncate(sharedSize)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, sharedSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	s := &subject{memory: memory, shared: (*shared)(unsafe.Pointer(&memory[0]))}
	s.Micros.Store(uint32(w.kernel.Microseconds())) //nolint:gosec // at most a minute
	s.Launch.Store(w.kernels)
	s.Tenant, err = m.Tenants.Create(ctx, tenant.Spec{
		Name: "laxity-bench-" + m.Name + "-" + name, Labels: w.labels, Program: m.program,
		Args:   []string{"/shared/" + name, strconv.Itoa(w.mib)},
		Mounts: []mount.Mount{{Type: mount.TypeBind, Source: m.folder, Target: "/shared"}},
	})
	if err != nil {
		return nil, errors.Join(err, syscall.Munmap(memory))
	}
	return s, nil
}

// start creates a container and starts it. It waits until its first kernel runs, or, where none
// is wanted yet, could run.
func (m *measurement) start(ctx context.Context, w work) (*subject, error) {
	s, err := m.create(ctx, w)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	err = m.until(ctx, startLimit, func() bool { return s.Ready.Load() != 0 && (w.kernels == 0 || s.Beat.Load() != 0) || s.gone() })
	if err == nil && s.gone() {
		err = fmt.Errorf("container %s ended at its start: %s", s.Name, s.said())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start of %s: %w", s.Name, err), s.close())
	}
	return s, nil
}

// begin starts the container and learns its process.
func (s *subject) begin(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	pid, err := s.PID(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s", err, s.said())
	}
	stat, ok := proc.ReadStat("/proc", pid)
	if !ok {
		return fmt.Errorf("container %s has ended: %s", s.Name, s.said())
	}
	s.process = rm.Process{PID: pid, Start: stat.Start}
	return nil
}

func (s *subject) target() channels.Target {
	return channels.Target{Container: s.ID, Processes: []rm.Process{s.process}}
}

// said is what the program says has failed.
func (s *subject) said() string {
	text, _, _ := bytes.Cut(s.Error[:], []byte{0})
	return string(text)
}

// gone reports whether the process has ended.
func (s *subject) gone() bool {
	state, err := channels.StateOf(s.process)
	return err == nil && state == channels.Gone
}

// finish lets the program end after its kernel, and reports whether all results were right.
func (m *measurement) finish(ctx context.Context, s *subject) error {
	s.Stop.Store(finish)
	if err := m.until(ctx, startLimit, s.gone); err != nil {
		return fmt.Errorf("%s does not end: %w", s.Name, err)
	}
	if s.Result.Load() != 1 {
		return fmt.Errorf("%s ended with a wrong result: %s", s.Name, s.said())
	}
	return nil
}

// close removes the container. It may be called again.
func (s *subject) close() error {
	err := s.Remove()
	if s.memory != nil {
		err = errors.Join(err, syscall.Munmap(s.memory))
		s.memory, s.shared = nil, nil
	}
	return err
}
