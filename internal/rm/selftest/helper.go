package selftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/rm"
)

// shared is the memory that the helper and its starter both map: struct shared of subject.c.
type shared struct {
	Ready, Launch, Most, Done, Stop, Beat, Wrong atomic.Uint32
	_                                            uint32
	Error                                        [96]byte
}

const sharedSize = 128

// SharedFD is the helper's descriptor of the shared memory.
const SharedFD = 3

// Helper is a helper process on a real GPU.
type Helper struct {
	cmd    *exec.Cmd
	memory []byte
	shared *shared
	stdin  io.Closer // closing it ends the helper
	stderr bytes.Buffer
	exited chan struct{}
	id     rm.Process
}

// Start starts argv, which must call subject.Serve, for the card with this UUID, and waits
// until it has a context.
func Start(ctx context.Context, kernel rm.Kernel, argv []string, gpu string) (*Helper, error) {
	fd, err := unix.MemfdCreate("laxity-selftest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the self-test: %w", err)
	}
	file := os.NewFile(uintptr(fd), "selftest")
	defer file.Close()
	if err := file.Truncate(sharedSize); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(fd, 0, sharedSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("memory for the self-test: %w", err)
	}
	h := &Helper{memory: memory, shared: (*shared)(unsafe.Pointer(&memory[0])), exited: make(chan struct{})}
	h.cmd = exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	h.cmd.ExtraFiles = []*os.File{file}
	h.cmd.Stderr = &h.stderr
	// Without a server of MPS, which would own our channels.
	h.cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+gpu, "CUDA_MPS_PIPE_DIRECTORY=/dev/null")
	if h.stdin, err = h.cmd.StdinPipe(); err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		_ = unix.Munmap(memory)
		return nil, fmt.Errorf("start the helper of the self-test: %w", err)
	}
	go func() {
		_ = h.cmd.Wait()
		close(h.exited)
	}()
	if err := h.await(ctx, func() bool { return h.shared.Ready.Load() != 0 }); err != nil {
		h.Close()
		return nil, err
	}
	stat, err := kernel.Stat(h.cmd.Process.Pid)
	if err != nil {
		h.Close()
		return nil, err
	}
	h.id = rm.Process{PID: h.cmd.Process.Pid, Start: stat.Start}
	return h, nil
}

// await waits for done, for the end of the helper, or for the end of ctx.
func (h *Helper) await(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-h.exited:
			text, _, _ := bytes.Cut(h.shared.Error[:], []byte{0})
			return fmt.Errorf("the helper of the self-test ended: %v: %s %s", h.cmd.ProcessState, text, bytes.TrimSpace(h.stderr.Bytes()))
		default:
		}
		if err := pause(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// Process returns the helper's process.
func (h *Helper) Process() rm.Process { return h.id }

// Launch starts the kernel, which runs for at most this long.
func (h *Helper) Launch(most time.Duration) error {
	h.shared.Stop.Store(0)
	h.shared.Beat.Store(0)
	h.shared.Most.Store(uint32(most.Microseconds()))
	h.shared.Launch.Add(1)
	return nil
}

// Beat returns the kernel's counter.
func (h *Helper) Beat() uint32 { return h.shared.Beat.Load() }

// Finish stops the kernel and waits for its end.
func (h *Helper) Finish(ctx context.Context) error {
	h.shared.Stop.Store(1)
	if err := h.await(ctx, func() bool { return h.shared.Done.Load() == h.shared.Launch.Load() }); err != nil {
		return err
	}
	if h.shared.Wrong.Load() != 0 {
		return errors.New("its result is wrong")
	}
	return nil
}

// Close ends the helper and waits until it is gone.
func (h *Helper) Close() {
	_ = h.stdin.Close()
	_ = h.cmd.Process.Signal(syscall.SIGKILL)
	<-h.exited
	_ = unix.Munmap(h.memory)
}
