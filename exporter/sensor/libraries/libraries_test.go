package libraries_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/sensor/libraries"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// watcher answers what it is told to, and says when it was asked.
type watcher struct {
	asked chan struct{}
	mu    sync.Mutex
	err   error
}

const content = "a driver"

func (w *watcher) Watch(file *cudafile.File) error {
	if file.ID.Size != int64(len(content)) {
		return cudafile.ErrNotDriver // this machine's own
	}
	w.asked <- struct{}{}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (*watcher) Unwatch(cudafile.ID) {}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// A file that cannot be watched is tried again and again, and told once.
func TestKeepTellsATroubleOnce(t *testing.T) {
	proc := t.TempDir()
	folder := filepath.Join(proc, "1", "root", "usr", "lib64")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "libcuda.so.1"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	w := &watcher{asked: make(chan struct{}), err: errors.New("no memory")}
	var out bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		libraries.New(proc, w).Keep(ctx, time.Millisecond, slog.New(slog.NewTextHandler(&out, nil)))
	}()
	const times = 5
	for range times {
		<-w.asked
	}
	w.fail(errors.New("no room")) // of the fifth call, or the sixth
	for range times {
		<-w.asked
	}
	w.fail(nil)
	stop()
	for ended := false; !ended; {
		select {
		case <-w.asked:
		case <-done:
			ended = true
		}
	}
	for _, trouble := range []string{"no memory", "no room"} {
		if n := strings.Count(out.String(), trouble); n != 1 {
			t.Errorf("%q was told %d times:\n%s", trouble, n, out.String())
		}
	}
}
