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

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor/libraries"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// drivers watches files of the driver, and notes whether each is watched.
type drivers map[cudafile.ID]bool

func (d drivers) Watch(file *cudafile.File) error {
	if file.ID.Size != int64(len(content)) {
		return cudafile.ErrNotDriver // this machine's own
	}
	d[file.ID] = true
	return nil
}

func (d drivers) Unwatch(id cudafile.ID) { d[id] = false }

// A tenant's lease on the host's file ends the watch of nobody.
func TestLeasedFileStaysWatched(t *testing.T) {
	proc := t.TempDir()
	path := filepath.Join(proc, "1", "root", "usr", "lib64", "libcuda.so.1")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	watched := drivers{}
	r := libraries.New(proc, watched)
	libraries.SetLimit(r, time.Minute)
	rescan := func() { // as Keep does at each tick
		if trouble := libraries.Rescan(r); len(trouble) > 0 {
			t.Errorf("trouble: %v", trouble)
		}
	}
	rescan()
	if len(watched) != 1 {
		t.Fatalf("%d files are watched", len(watched))
	}
	tenant, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tenant.Close()
	if _, err := unix.FcntlInt(tenant.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal("no lease: ", err)
	}
	for range 3 {
		rescan()
	}
	for id, is := range watched {
		if !is {
			t.Errorf("%v is not watched any more", id)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		rescan()
	}
	for id, is := range watched {
		if is {
			t.Errorf("%v is watched, and gone", id)
		}
	}
}

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
	r := libraries.New(proc, w)
	libraries.SetLimit(r, time.Minute) // a search that takes longer is another trouble
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Keep(ctx, time.Millisecond, slog.New(slog.NewTextHandler(&out, nil)))
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
