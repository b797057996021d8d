// Package tenant runs a small program on a real GPU, for tests: a kernel that spins and increments
// a counter, or a series of short kernels. It needs a C compiler and libcuda, no toolkit.
package tenant

import (
	"bytes"
	"context"
	_ "embed" // for the C source
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/rm/ptx"
)

//go:embed src/tenant.c
var source []byte

// program is the source with its kernels.
func program() []byte {
	return append([]byte("#define PTX "+strconv.QuoteToASCII(ptx.Text)+"\n"), source...)
}

// Kinds of a tenant.
const (
	Spin  = "spin"  // one kernel, until Stop
	Steps = "steps" // a series of kernels of 0.2 ms
)

// shared is struct shared of tenant.c.
type shared struct {
	Ready, Stop, Beat, Result, Steps, Begin atomic.Uint32
	Error                                   [104]byte
}

const sharedSize = 128

// Tenant is a running program.
type Tenant struct {
	cmd    *exec.Cmd
	shared *shared
	memory []byte
	stderr bytes.Buffer
	exited chan struct{}
}

// Options of a tenant.
type Options struct {
	Kind     string        // Spin or Steps
	Contexts int           // the first computes
	Most     time.Duration // it ends by itself after that
	Churn    int           // how often it takes and frees memory before its second context
	Late     bool          // it makes its first driver call only after Begin
}

// Start builds the program, starts it with its own file in dir, and waits until its kernel runs,
// unless Late.
func Start(ctx context.Context, dir string, o Options) (*Tenant, error) {
	path, err := cc.Build(ctx, cc.CacheDir(), cc.Target{Name: "tenant", Source: program(), Flags: []string{"-ldl"}})
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "tenant-")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(sharedSize); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, sharedSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	t := &Tenant{memory: memory, shared: (*shared)(unsafe.Pointer(&memory[0])), exited: make(chan struct{})}
	file, err := filepath.Abs(f.Name())
	if err != nil {
		return nil, err
	}
	late := 0
	if o.Late {
		late = 1
	}
	t.cmd = exec.CommandContext(context.WithoutCancel(ctx), path, file, o.Kind, strconv.Itoa(o.Contexts),
		strconv.FormatFloat(o.Most.Seconds(), 'f', 3, 64), strconv.Itoa(o.Churn), strconv.Itoa(late))
	t.cmd.Stderr = &t.stderr
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = t.cmd.Wait()
		close(t.exited)
	}()
	if o.Late {
		return t, nil
	}
	if err := t.running(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// Begin lets a Late program make its context, and waits until its kernel runs.
func (t *Tenant) Begin(ctx context.Context) error {
	t.shared.Begin.Store(1)
	return t.running(ctx)
}

func (t *Tenant) running(ctx context.Context) error {
	for t.shared.Ready.Load() == 0 || t.Beat() == 0 {
		select {
		case <-ctx.Done():
			t.Kill()
			return ctx.Err()
		case <-t.exited:
			return fmt.Errorf("the tenant ended: %v: %s", t.cmd.ProcessState, t.stderr.String())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// PID of the process.
func (t *Tenant) PID() int { return t.cmd.Process.Pid }

// Beat returns the counter that the kernel increments.
func (t *Tenant) Beat() uint32 { return t.shared.Beat.Load() }

// Launched is how many kernels of Steps have been launched.
func (t *Tenant) Launched() uint32 { return t.shared.Steps.Load() }

// Exited is closed when the process is gone.
func (t *Tenant) Exited() <-chan struct{} { return t.exited }

// Kill ends the process, and waits until it is gone.
func (t *Tenant) Kill() {
	_ = t.cmd.Process.Kill()
	<-t.exited
}

// End ends the process while its kernel runs: by a signal, or, if that is 0, by exit(), or by
// _exit() if atOnce. It does not wait.
func (t *Tenant) End(signal syscall.Signal, atOnce bool) error {
	switch {
	case signal != 0:
		return t.cmd.Process.Signal(signal)
	case atOnce:
		t.shared.Stop.Store(3)
	default:
		t.shared.Stop.Store(2)
	}
	return nil
}

// Stop lets the program end by itself, and says whether its result is right.
func (t *Tenant) Stop(ctx context.Context) error {
	t.shared.Stop.Store(1)
	select {
	case <-t.exited:
	case <-ctx.Done():
		t.Kill()
		return fmt.Errorf("the tenant did not end: %w", ctx.Err())
	}
	if t.shared.Result.Load() != 1 {
		text, _, _ := bytes.Cut(t.shared.Error[:], []byte{0})
		return errors.New("the tenant's result is wrong: " + string(text) + " " + t.cmd.ProcessState.String())
	}
	return nil
}
