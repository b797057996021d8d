package libraries_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/sensor/libraries"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

const (
	patience = 30 * time.Second // only bounds a failure
	slow     = "a driver on a server that is down"
)

// stuck is a watcher that hangs on files with the content slow until gate is closed.
type stuck struct {
	hangs   chan struct{} // gets a value for each that hangs
	watched chan struct{}
	gate    chan struct{}
}

func (s *stuck) Watch(file *cudafile.File) error {
	switch file.ID.Size {
	case int64(len(slow)):
		s.hangs <- struct{}{}
		<-s.gate
	case int64(len(content)):
		s.watched <- struct{}{}
	default:
		return cudafile.ErrNotDriver // this machine's own
	}
	return nil
}

func (*stuck) Unwatch(cudafile.ID) {}

// process adds a process to a folder like /proc, with a driver of this content.
func process(t *testing.T, proc string, pid int, driver string) {
	t.Helper()
	folder := filepath.Join(proc, strconv.Itoa(pid))
	if err := os.MkdirAll(filepath.Join(folder, "root", "usr", "lib64"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"maps": "", "root/usr/lib64/libcuda.so.1": driver} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// within fails the test unless f returns.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("hangs: ", what)
	}
}

// The file system of one container is down: the others are searched, and the rescans end.
func TestOneFileThatHangsStopsNothingElse(t *testing.T) {
	proc := t.TempDir()
	process(t, proc, 7, slow)
	process(t, proc, 8, content)
	w := &stuck{hangs: make(chan struct{}, 1), watched: make(chan struct{}, 1), gate: make(chan struct{})}
	r := libraries.New(proc, w)
	found := make(chan error, 1)
	go func() { found <- r.Discover(7) }()
	within(t, "the first search", func() { <-w.hangs })
	within(t, "another container's search", func() {
		if err := r.Discover(8); err != nil {
			t.Error(err)
		}
		<-w.watched
	})
	within(t, "Paths and Release", func() {
		if paths := r.Paths(); len(paths) != 1 {
			t.Errorf("watched: %v", paths)
		}
		r.Release(9)
	})
	close(w.gate)
	if err := <-found; err != nil || len(r.Paths()) != 2 {
		t.Errorf("after it has returned: %v, watched %v", err, r.Paths())
	}
}

// Keep does not wait for a search that hangs when it is to end.
func TestKeepEndsWhileASearchHangs(t *testing.T) {
	proc := t.TempDir()
	process(t, proc, 1, slow) // the host's
	w := &stuck{hangs: make(chan struct{}, 1), gate: make(chan struct{})}
	defer close(w.gate)
	ctx, stop := context.WithCancel(t.Context())
	within(t, "Keep", func() {
		go func() { <-w.hangs; stop() }()
		libraries.New(proc, w).Keep(ctx, time.Millisecond, slog.New(slog.DiscardHandler))
	})
}
