package cudaprobe_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

const patience = 30 * time.Second

// harness is a probe on the stand-in library, and its events.
type harness struct {
	*cudaprobe.Probe
	built  cudatest.Built
	events chan cudaprobe.Event
}

// ways are the two ways to attach; both must behave the same.
var ways = map[string]cudaprobe.Options{"all at once": {}, "one by one": {OneByOne: true}}

func newHarness(t testing.TB, o cudaprobe.Options) *harness {
	t.Helper()
	h := deaf(t, o)
	go func() {
		defer close(h.events)
		for {
			e, err := h.Next()
			if err != nil {
				return
			}
			h.events <- e
		}
	}()
	return h
}

// deaf is a harness that takes no events.
func deaf(t testing.TB, o cudaprobe.Options) *harness {
	t.Helper()
	p, err := cudaprobe.New(o)
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		needtest.BPF.Skip(t, err)
	}
	if err != nil { // a program that the kernel does not take is our mistake
		t.Fatal(err)
	}
	h := &harness{Probe: p, built: cudatest.Build(t), events: make(chan cudaprobe.Event, 1024)}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// watched is a harness whose library has the probes that are always there.
func watched(t testing.TB, o cudaprobe.Options) *harness {
	t.Helper()
	h := newHarness(t, o)
	program := h.built.Start(t)
	program.Open()
	h.addFrom(t, program.PID)
	return h
}

// tracked is watched, with a program of which the launches are followed.
func tracked(t testing.TB, o cudaprobe.Options) (*harness, *cudatest.Program) {
	t.Helper()
	h := watched(t, o)
	p := h.built.Start(t)
	p.Open()
	if err := h.Track(p.PID); err != nil {
		t.Fatal(err)
	}
	return h, p
}

func (h *harness) addFrom(t testing.TB, pid int) {
	t.Helper()
	files, err := cudafile.Finder{}.Mapped(pid)
	if err != nil || len(files) != 1 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	defer cudafile.CloseAll(files)
	if added, err := h.Add(files[0]); err != nil || !added {
		t.Fatalf("Add: %v, %v", added, err)
	}
}

func (h *harness) next(t testing.TB) cudaprobe.Event {
	t.Helper()
	select {
	case e, open := <-h.events:
		if !open {
			t.Fatal("the probe is closed")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event came")
	}
	return cudaprobe.Event{}
}

// expect checks that the next event is this one, within the program's own times.
func (h *harness) expect(t testing.TB, p *cudatest.Program, kind cudaprobe.Kind, c cudatest.Called) cudaprobe.Event {
	t.Helper()
	e := h.next(t)
	if e.PID != p.PID || e.Kind != kind {
		t.Fatalf("got %+v, want kind %d of process %d", e, kind, p.PID)
	}
	if e.Time.Before(c.Before) || e.Time.Add(-e.ErrorBound).After(c.After) {
		t.Errorf("at %v ± %v, not within the call from %v to %v", e.Time, e.ErrorBound, c.Before, c.After)
	}
	return e
}

// none checks that nothing is to be told: a new process's first call comes next.
func (h *harness) none(t testing.TB) {
	t.Helper()
	marker := h.built.Start(t)
	h.expect(t, marker, cudaprobe.InitCalled, marker.Call("cuInit"))
}

func TestFirstCalls(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			h := watched(t, o)
			p := h.built.Start(t)
			e := h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
			if e.TID != p.PID || e.Start <= 0 {
				t.Errorf("got %+v", e)
			}
			p.CallTimes("cuInit", 1000)
			h.expect(t, p, cudaprobe.ContextCalled, p.CallInThread("cuDevicePrimaryCtxRetain"))
			p.Call("cuCtxCreate_v4")
			p.Call("cuLaunchKernel")
			h.none(t)
		})
	}
}

func TestNextContextIsToldAfterTheLastIsGone(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	p := h.built.Start(t)
	h.expect(t, p, cudaprobe.ContextCalled, p.Call("cuCtxCreate_v2"))
	p.CallFor("cuStreamSynchronize", 20*time.Millisecond) // some time passes
	c := p.Call("cuCtxDestroy_v2")
	h.expect(t, p, cudaprobe.Leaving, c)
	h.expect(t, p, cudaprobe.Left, c)
	h.expect(t, p, cudaprobe.ContextCalled, p.Call("cuCtxCreate_v2"))
	const rearm = 10 * time.Millisecond // REARM in starts.bpf.c
	began := time.Now()
	for range 1000 { // but a loop of both does not flood us
		p.Call("cuCtxDestroy_v2")
		p.Call("cuCtxCreate_v2")
	}
	took := time.Since(began)
	var count int
	marker := h.built.Start(t)
	marker.Call("cuInit")
	for h.next(t).PID != marker.PID {
		count++
	}
	if most := 3 * (int(took/rearm) + 1); count > most { // each time Leaving, Left and ContextCalled
		t.Errorf("%d events of 1000 contexts in %v, want at most %d", count, took, most)
	}
}

func TestForkAndExecBeginAnew(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	p := h.built.Start(t)
	first := h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
	p.Exec()
	second := h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
	if first.Start != second.Start || second.Execs != first.Execs+1 {
		t.Errorf("before exec %+v, after %+v", first, second)
	}
	p.PID = p.Fork()
	child := h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
	if child.Start == first.Start {
		t.Errorf("parent %+v, child %+v", first, child)
	}
}

// mapped is the file of the driver that a program has loaded.
func mapped(t *testing.T, p *cudatest.Program) *cudafile.File {
	t.Helper()
	files, err := cudafile.Finder{}.Mapped(p.PID)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	t.Cleanup(func() { _ = files[0].Close() })
	return files[0]
}

func TestAddAndRemove(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	p := h.built.Start(t)
	p.Open()
	file := mapped(t, p)
	if added, err := h.Add(file); added || err != nil {
		t.Errorf("the same file again: %v, %v", added, err)
	}
	h.Remove(file.ID)
	if s := h.Stats(); s.Files != 0 {
		t.Errorf("%+v", s)
	}
	for end := time.Now().Add(patience); h.Stats().Detaching > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still detaching")
		}
	}
	p.Call("cuInit")
	if added, err := h.Add(file); !added || err != nil {
		t.Errorf("after Remove: %v, %v", added, err)
	}
	h.none(t)
}

func TestTrack(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			h := watched(t, o)
			p, other := h.built.Start(t), h.built.Start(t)
			p.Open()
			other.Open()
			for range 2 {
				if err := h.Track(p.PID); err != nil {
					t.Fatal(err)
				}
			}
			if s := h.Stats(); s.Tracked != 1 {
				t.Errorf("%+v", s)
			}
			p.Call("cuCtxSynchronize") // nothing was launched
			for _, way := range []struct{ launch, sync string }{
				{"cuLaunchKernel", "cuCtxSynchronize"},
				{"cuLaunchKernel_ptsz", "cuStreamSynchronize_ptsz"},
				{"cuLaunchKernelEx", "cuEventSynchronize"},
				{"cuGraphLaunch", "cuMemcpyDtoH_v2"},
			} {
				h.expect(t, p, cudaprobe.Launched, p.CallInThread(way.launch))
				p.CallTimes(way.launch, 100)
				other.Call(way.launch)
				other.Call(way.sync)
				h.expect(t, p, cudaprobe.Done, p.Call(way.sync))
			}
			h.none(t)
			h.Untrack(p.PID)
			p.Call("cuLaunchKernel")
			h.none(t)
		})
	}
}

// A copy that is really asynchronous proves nothing; one that waited does.
func TestTrackAsynchronousCopy(t *testing.T) {
	const copies = "cuMemcpyDtoHAsync_v2"
	const waited = 100 * time.Microsecond // WAITED in launches.bpf.c
	var h *harness
	var p *cudatest.Program
	for end := time.Now().Add(patience); ; {
		h, p = tracked(t, cudaprobe.Options{})
		h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
		c := p.Call(copies)
		if c.After.Sub(c.Before) < waited {
			break
		}
		// It was interrupted, and may pass for one that waited.
		if time.Now().After(end) {
			t.Fatal("each copy takes as long as one that waits")
		}
	}
	h.none(t)
	h.expect(t, p, cudaprobe.Done, p.CallFor(copies, 10*time.Millisecond))
	h.none(t)
}

// What is launched while a call waits is not done when that call returns.
func TestTrackLaunchDuringSync(t *testing.T) {
	h, p := tracked(t, cudaprobe.Options{})
	h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
	p.Hold("cuCtxSynchronize")
	p.Call("cuLaunchKernel")
	p.Release()
	h.expect(t, p, cudaprobe.Done, p.Call("cuCtxSynchronize"))
	h.none(t)
}

// Another stream that was still at work moves the end.
func TestTrackSecondSyncThatWaits(t *testing.T) {
	h, p := tracked(t, cudaprobe.Options{})
	h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
	first := h.expect(t, p, cudaprobe.Done, p.Call("cuStreamSynchronize"))
	second := h.expect(t, p, cudaprobe.Done, p.CallFor("cuStreamSynchronize", 10*time.Millisecond))
	if gap := second.Time.Sub(first.Time); gap < 10*time.Millisecond {
		t.Errorf("only %v later", gap)
	}
}

func TestTrackNeedsTheLibrary(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	if err := h.Track(h.built.Start(t).PID); !errors.Is(err, cudaprobe.ErrNotLoaded) {
		t.Errorf("got %v, want ErrNotLoaded", err)
	}
	if err := h.Track(1 << 30); err == nil {
		t.Error("no error for no process")
	}
	if s := h.Stats(); s.Tracked != 0 {
		t.Errorf("%+v", s)
	}
}

func TestClose(t *testing.T) {
	h, p := tracked(t, cudaprobe.Options{})
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if e, open := <-h.events; open {
		t.Errorf("got %+v", e)
	}
	if err := h.Track(p.PID); !errors.Is(err, cudaprobe.ErrClosed) {
		t.Errorf("Track: %v", err)
	}
	p.Call("cuLaunchKernel") // it runs on
}

func TestCheck(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			for _, check := range []func(cudaprobe.Options) error{cudaprobe.Check, cudaprobe.CheckTrack} {
				if err := check(o); err != nil && !errors.Is(err, cudaprobe.ErrUnsupported) {
					t.Error(err)
				}
			}
		})
	}
}

// BenchmarkCall measures what a call costs the program: without probes, with
// those that are always there, and when it is tracked. One that launches fast stays
// watched as long as nobody calls Next.
func BenchmarkCall(b *testing.B) {
	for _, bench := range []struct {
		name, function string
		always, track  bool
		fast           bool
	}{
		{"launch/no probes", "cuLaunchKernel", false, false, false},
		{"launch/always", "cuLaunchKernel", true, false, false},
		{"launch/watched", "cuLaunchKernel", true, true, false},
		{"launch/watched, an older driver's", "cuLaunchKernel_ptsz", true, true, false},
		{"launch/tracked, fast", "cuLaunchKernel", true, true, true},
		{"sync/no probes", "cuStreamSynchronize", false, false, false},
		{"sync/always", "cuStreamSynchronize", true, false, false},
		{"sync/tracked", "cuStreamSynchronize", true, true, false},
		{"sync/tracked, an older driver's", "cuStreamSynchronize_ptsz", true, true, false},
		{"sync/tracked, fast", "cuStreamSynchronize", true, true, true},
		{"init/no probes", "cuInit", false, false, false},
		{"init/always", "cuInit", true, false, false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			open := deaf
			if bench.fast {
				open = newHarness
			}
			h := open(b, cudaprobe.Options{})
			p := h.built.Start(b)
			p.Open()
			if bench.always {
				h.addFrom(b, p.PID)
			}
			if bench.track {
				if err := h.Track(p.PID); err != nil {
					b.Fatal(err)
				}
			}
			if bench.fast {
				h.becomesFast(b, p)
			}
			if bench.track {
				p.Call("cuLaunchKernel")
			}
			b.ResetTimer()
			c := p.CallTimes(bench.function, b.N)
			b.ReportMetric(float64(c.After.Sub(c.Before).Nanoseconds())/float64(b.N), "ns/call")
		})
	}
}

// BenchmarkInit measures from the call to the event in user space, and how
// precise the time in the event is.
func BenchmarkInit(b *testing.B) {
	h := watched(b, cudaprobe.Options{})
	var delays, errs []time.Duration
	for b.Loop() {
		p := h.built.Start(b)
		p.Open()
		c := p.Call("cuInit")
		e := h.next(b)
		delays = append(delays, time.Since(e.Time))
		errs = append(errs, e.Time.Sub(c.Before))
	}
	slices.Sort(delays)
	slices.Sort(errs)
	b.ReportMetric(float64(errs[len(errs)/2].Nanoseconds())/1000, "median-error-µs")
	b.ReportMetric(float64(errs[len(errs)*99/100].Nanoseconds())/1000, "p99-error-µs")
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "median-delay-µs")
}

func BenchmarkTrack(b *testing.B) {
	h := watched(b, cudaprobe.Options{})
	p := h.built.Start(b)
	p.Open()
	for b.Loop() {
		if err := h.Track(p.PID); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		h.Untrack(p.PID)
		b.StartTimer()
	}
}
