package rm

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
)

// The calls of this machine's kernel that need no GPU.
func TestSystem(t *testing.T) {
	s := System()
	child := exec.CommandContext(t.Context(), "cat")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	stat, err := s.Stat(pid)
	up, upErr := s.Uptime()
	if err != nil || upErr != nil || stat.Exiting || stat.Start == 0 || uint64(up/tick) < stat.Start {
		t.Errorf("%+v %v, %v after boot %v", stat, err, up, upErr)
	}
	if fds, err := s.Descriptors(t.Context(), pid); err != nil || len(fds) > 0 {
		t.Errorf("cat has descriptors %v of NVIDIA's control device, %v", fds, err)
	}
	pidfd, err := s.Pidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("duplicate", func(t *testing.T) {
		dup, err := s.Duplicate(pidfd, 0)
		if errors.Is(err, ErrUnsupported) {
			needtest.Tracing.Skip(t, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if device, err := s.Device(dup); err != nil || device.control() {
			t.Errorf("a pipe is %+v, %v", device, err)
		}
		if err := s.Ioctl(dup, request(escControl, 32), make([]byte, 32), make([]byte, 8)); !errors.Is(err, unix.ENOTTY) {
			t.Errorf("a pipe answers a control: %v", err)
		}
		if err := s.Close(dup); err != nil {
			t.Error(err)
		}
		if _, err := s.Duplicate(pidfd, 999); !errors.Is(err, ErrChanged) {
			t.Errorf("a descriptor that is closed: %v", err)
		}
	})
	ends(t, child, stdin, pidfd)
	_ = s.Close(pidfd)
	if _, err := s.Stat(pid); !errors.Is(err, ErrGone) {
		t.Errorf("stat of a process that ended: %v", err)
	}
	if _, err := s.Descriptors(t.Context(), pid); !errors.Is(err, ErrGone) {
		t.Errorf("descriptors of a process that ended: %v", err)
	}
	if _, err := s.Pidfd(pid); !errors.Is(err, ErrGone) {
		t.Errorf("pidfd of a process that ended: %v", err)
	}
}

// ends ends a process that goes on until its standard input is closed: its descriptors are gone.
func ends(t *testing.T, child *exec.Cmd, stdin io.Closer, pidfd int) {
	t.Helper()
	_ = stdin.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := System().Duplicate(pidfd, 0); !errors.Is(err, ErrGone) {
		t.Errorf("duplicate of a process that ended: %v", err)
	}
}

func TestWithoutADriver(t *testing.T) {
	if _, err := os.Stat(controlDevice); err == nil {
		t.Skip("there is a GPU")
	}
	m := New(System(), Options{})
	if err := m.Supported(); !errors.Is(err, ErrUnsupported) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := m.Find(t.Context(), Process{PID: os.Getpid()}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, err := System().Open(); err == nil {
		t.Error("a control device that is not there was opened")
	}
	if _, err := System().OpenGPU("GPU-0"); err == nil {
		t.Error("a GPU that is not there was opened")
	}
}
