// Package simtest gives tests a simulated GPU with a socket, and real tenants on
// it: processes, and Docker containers. Whatever it starts ends with the test.
// It skips, with the reason, where a C compiler or Docker is missing.
package simtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/needtest"
)

// Server is a simulated GPU that answers on a socket.
type Server struct {
	*sim.GPU
	Socket string

	cancel context.CancelFunc
	done   chan struct{}
}

// Start makes the GPUs that opts describe and serves them until the test ends.
func Start(t testing.TB, opts sim.Options) *Server {
	t.Helper()
	gpu, err := sim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: a socket's path is at most 107 bytes long.
	dir, err := os.MkdirTemp("", "laxity-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &Server{GPU: gpu, Socket: filepath.Join(dir, "gpu.sock")}
	s.Resume(t)
	t.Cleanup(s.Stop)
	return s
}

// Stop ends serving: connections break, tenants have ended, the socket is gone.
// The GPUs stay as they are.
func (s *Server) Stop() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	<-s.done
	s.cancel = nil
}

// Resume serves again after Stop.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	l, err := sim.Listen(t.Context(), s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.done = make(chan struct{})
	done := s.done
	go func() {
		defer close(done)
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	}()
}

// Opened calls open, which dials a simulated GPU, until that answers in time. sim.Dial waits 2 s for
// it; a busy machine takes longer.
func Opened[T any](open func() (T, error)) (opened T, err error) {
	opened, err = open()
	for end := time.Now().Add(patience); errors.Is(err, context.DeadlineExceeded) && time.Now().Before(end); {
		opened, err = open()
	}
	return opened, err
}

// Dial returns a device that reads s over its socket.
func (s *Server) Dial(t testing.TB) device.Device {
	t.Helper()
	d, err := Opened(func() (device.Device, error) { return sim.Dial(s.Socket) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Library returns the folder of the stand-in libcuda.so.1.
func Library(t testing.TB) string {
	t.Helper()
	dir, err := cuda.Build("")
	skipWithoutCompiler(t, err)
	return dir
}

func skipWithoutCompiler(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, cc.ErrNoCompiler) {
		needtest.Compiler.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
