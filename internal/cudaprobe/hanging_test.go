package cudaprobe_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/needtest"
)

// hold makes reads of a file that is opened later hang, as they do on a network file system whose
// server is down. wait returns once one hangs; release lets all go on.
func hold(t *testing.T, path string) (wait, release func()) {
	t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		needtest.Fanotify.Skip(t, err)
	}
	queue := os.NewFile(uintptr(fd), "fanotify")
	release = func() { _ = queue.Close() } // the kernel allows what waits
	t.Cleanup(release)
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_ACCESS_PERM, unix.AT_FDCWD, path); err != nil {
		needtest.Fanotify.Skip(t, err)
	}
	return func() {
		t.Helper()
		if err := queue.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		var event [24]byte
		if _, err := queue.Read(event[:]); err != nil {
			t.Fatal("no read hangs: ", err)
		}
	}, release
}

// While a file of a container hangs, everything else goes on.
func TestAFileThatHangsStopsNothingElse(t *testing.T) {
	for name, begin := range map[string]func(*harness, *cudafile.File, int) error{
		"add":   func(h *harness, file *cudafile.File, _ int) error { _, err := h.Add(file); return err },
		"track": func(h *harness, _ *cudafile.File, pid int) error { return h.Track(pid) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, cudaprobe.Options{})
			p := h.built.Start(t)
			p.Open()
			wait, release := hold(t, h.built.Library)
			files, err := cudafile.Finder{}.Mapped(p.PID)
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			defer cudafile.CloseAll(files)
			ended := make(chan error, 1)
			go func() { ended <- begin(h, files[0], p.PID) }()
			wait()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = h.Lost()
				_ = h.Stats()
				_ = h.Know(p.PID)
				h.Remove(cudafile.ID{Ino: 1})
			}()
			select {
			case <-done:
			case <-time.After(patience):
				t.Error("other calls wait for it")
			}
			release()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// Next ends with Close, also while probes cannot be attached or detached.
func TestAProbeThatHangsDoesNotKeepNext(t *testing.T) {
	p, err := cudaprobe.New(cudaprobe.Options{})
	if errors.Is(err, cudaprobe.ErrUnsupported) {
		needtest.BPF.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	release := p.HoldProbes()
	next, closed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := p.Next(); next <- err }()
	go func() { closed <- p.Close() }()
	select {
	case err := <-next:
		if !errors.Is(err, cudaprobe.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Next waits for it")
	}
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A file counts as watched once its probes are there. Who adds it meanwhile waits, and attaches them where the first
// one could not.
func TestAddWaitsForAnAddOfTheSameFile(t *testing.T) {
	h := newHarness(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	files, err := cudafile.Finder{}.Mapped(p.PID)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	defer cudafile.CloseAll(files)
	fail := h.HoldAdd(files[0].ID)
	added := make(chan bool)
	go func() {
		is, err := h.Add(files[0])
		if err != nil {
			t.Error(err)
		}
		added <- is
	}()
	select {
	case <-added:
		t.Fatal("it does not wait")
	case <-time.After(50 * time.Millisecond):
	}
	fail()
	if !<-added {
		t.Error("it did not attach the probes itself")
	}
}
