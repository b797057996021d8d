package cudaprobe_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

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
			wait, release := cudatest.Hold(t, h.built.Library, unix.FAN_ACCESS_PERM)
			file := mapped(t, p)
			ended := make(chan error, 1)
			go func() { ended <- begin(h, file, p.PID) }()
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
	file := mapped(t, p)
	synctest.Test(t, func(t *testing.T) { // to know that it has come to wait
		defer func() { // here: what counts its attachments belongs to the bubble
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}()
		fail := h.HoldAdd(file.ID)
		added := make(chan bool, 1)
		go func() {
			is, err := h.Add(file)
			if err != nil {
				t.Error(err)
			}
			added <- is
		}()
		synctest.Wait()
		if len(added) > 0 {
			t.Error("it does not wait")
		}
		fail()
		if !<-added {
			t.Error("it did not attach the probes itself")
		}
	})
}
