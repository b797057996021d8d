package cudaprobe_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// enough launches in a row show that a program launches fast: it is looked at every
// 1,024 of them.
const enough = 2100

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never:", what)
		}
	}
}

// unwatched is a program that has launched fast, and whose launches are not watched.
func unwatched(t testing.TB, o cudaprobe.Options) (*harness, *cudatest.Program) {
	t.Helper()
	h, p := tracked(t, o)
	h.becomesFast(t, p)
	return h, p
}

func (h *harness) becomesFast(t testing.TB, p *cudatest.Program) {
	t.Helper()
	c := p.CallTimes("cuLaunchKernel", enough)
	h.expect(t, p, cudaprobe.Launched, c)
	h.expect(t, p, cudaprobe.Launched, c)
	await(t, "its probe is off", func() bool { s := h.Stats(); return s.Unwatched == 1 && s.Detaching == 0 })
}

func (h *harness) armed(t testing.TB) {
	t.Helper()
	await(t, "it is watched again", func() bool { return h.Stats().Unwatched == 0 })
}

func (h *harness) launches(t testing.TB, p *cudatest.Program) uint64 {
	t.Helper()
	n, err := h.Launches(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// reconsider is look.go's: from the launches that are seen on, a probe is off for so long.
const reconsider = time.Second

func TestFastLaunchesAreNotWatched(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			o.Quiet = 2 * reconsider
			var h *harness
			var p *cudatest.Program
			var last cudatest.Called
			for try := 0; ; try++ {
				h, p = tracked(t, o)
				began := time.Now()
				h.becomesFast(t, p)
				before := h.launches(t, p)
				for range 50 {
					p.CallTimes("cuLaunchKernel", enough)
					last = p.Call("cuStreamSynchronize")
				}
				seen := h.launches(t, p) - before
				if took := time.Since(began); took >= reconsider && try < 20 {
					t.Logf("the launches took %v: the probe may have been put on between two", took)
					continue
				}
				if seen != 0 {
					t.Errorf("%d launches were seen", seen)
				}
				break
			}
			if e := h.expect(t, p, cudaprobe.Done, last); time.Since(e.Time) < o.Quiet {
				t.Errorf("told after %v", time.Since(e.Time))
			}
			h.armed(t)
			h.none(t)
			h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
			h.expect(t, p, cudaprobe.Done, p.CallFor("cuStreamSynchronize", 10*time.Millisecond))
			h.none(t)
		})
	}
}

// A launch that comes before the quiet time is over is told, with the time at which
// the work before it was done.
func TestLaunchWithinTheQuietTime(t *testing.T) {
	h, p := unwatched(t, cudaprobe.Options{Quiet: 400 * time.Millisecond})
	last := p.Call("cuStreamSynchronize")
	h.armed(t)
	c := p.CallTimes("cuLaunchKernel", 100)
	h.expect(t, p, cudaprobe.Done, last)
	h.expect(t, p, cudaprobe.Launched, c)
	h.none(t)
	h.expect(t, p, cudaprobe.Done, p.Call("cuStreamSynchronize"))
}

// While a call waits for the GPU nothing is done, whether it began before or after
// the probe was put on again.
func TestNoEndWhileACallWaits(t *testing.T) {
	const quiet = 200 * time.Millisecond
	// From the last fast launch on, the probe waits so long for half of the quiet time (look.go).
	for range 20 {
		h, p := tracked(t, cudaprobe.Options{Quiet: quiet})
		began := time.Now()
		h.becomesFast(t, p)
		first := p.Call("cuStreamSynchronize")
		p.Hold("cuCtxSynchronize")
		if time.Since(first.Before) >= quiet/2 || time.Since(began) >= reconsider {
			continue // the probe may have been put on before the call
		}
		time.Sleep(3 * quiet)
		h.none(t)
		h.expect(t, p, cudaprobe.Done, p.Release())

		h.expect(t, p, cudaprobe.Launched, p.CallTimes("cuLaunchKernel", 10))
		first = p.Call("cuStreamSynchronize")
		h.armed(t)
		p.Hold("cuCtxSynchronize")
		if time.Since(first.Before) >= quiet {
			continue // the quiet time may have been over before the call
		}
		time.Sleep(2 * quiet)
		h.none(t)
		c := p.Release()
		h.expect(t, p, cudaprobe.Done, c) // by the probe,
		h.expect(t, p, cudaprobe.Done, c) // and when the quiet time after it was over
		h.none(t)
		return
	}
	t.Skip("the machine is too slow: in every try the call began too late")
}

// Nothing is known to be done unless a call returned since: a copy that did not wait
// is none.
func TestNoEndWithoutAReturn(t *testing.T) {
	const quiet = 100 * time.Millisecond
	// What takes so long (WAITED in launches.bpf.c) did wait, as far as the probes can tell: on a busy machine it
	// may have waited for a processor.
	const waited = 100 * time.Microsecond
	for range 50 {
		h, p := tracked(t, cudaprobe.Options{Quiet: quiet})
		p.Call("cuMemcpyDtoHAsync_v2") // the first call of a function waits for its pages
		h.becomesFast(t, p)
		if c := p.Call("cuMemcpyDtoHAsync_v2"); c.After.Sub(c.Before) >= waited {
			continue
		}
		time.Sleep(3 * quiet)
		h.none(t)
		if s := h.Stats(); s.Unwatched != 1 {
			t.Errorf("%+v", s)
		}
		h.expect(t, p, cudaprobe.Done, p.CallFor("cuMemcpyDtoHAsync_v2", 10*time.Millisecond))
		return
	}
	t.Fatal("every copy took longer than one that does not wait")
}

// What only asks whether work is done, all the time, is found idle.
func TestOneThatSynchronisesForEver(t *testing.T) {
	h, p := unwatched(t, cudaprobe.Options{Quiet: 100 * time.Millisecond})
	for end := time.Now().Add(patience); len(h.events) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its work is never done")
		}
		p.Call("cuStreamSynchronize")
	}
	if e := h.next(t); e.Kind != cudaprobe.Done {
		t.Errorf("got %+v", e)
	}
}

func TestSlowLaunchesAreWatched(t *testing.T) {
	h, p := tracked(t, cudaprobe.Options{})
	h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
	for range 2 {
		p.CallTimes("cuLaunchKernel", 1000)
		time.Sleep(550 * time.Millisecond)
	}
	p.CallTimes("cuLaunchKernel", 1000)
	if n, s := h.launches(t, p), h.Stats(); n != 3001 || s.Unwatched != 0 {
		t.Errorf("%d launches were seen, %+v", n, s)
	}
	h.expect(t, p, cudaprobe.Done, p.Call("cuStreamSynchronize"))
}

// What was fast is taken for fast again at its first launch, but not for ever.
func TestOneThatBecameSlowIsWatchedAgain(t *testing.T) {
	h, p := unwatched(t, cudaprobe.Options{Quiet: 20 * time.Millisecond})
	h.expect(t, p, cudaprobe.Done, p.Call("cuStreamSynchronize"))
	trials := 0
	for h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel")); h.Stats().Unwatched == 1; trials++ {
		h.expect(t, p, cudaprobe.Done, p.Call("cuStreamSynchronize"))
		h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
	}
	if trials < 2 || trials > 20 {
		t.Errorf("taken for fast %d times", trials)
	}
	if e := h.expect(t, p, cudaprobe.Done, p.Call("cuStreamSynchronize")); e.TID != p.PID {
		t.Errorf("told by a look: %+v", e)
	}
	h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
	c := p.CallTimes("cuLaunchKernel", enough)
	h.expect(t, p, cudaprobe.Launched, c)
	if s := h.Stats(); s.Unwatched != 1 {
		t.Errorf("fast again, and %+v", s)
	}
}

func TestExecWhileUnwatched(t *testing.T) {
	h, p := unwatched(t, cudaprobe.Options{Quiet: 100 * time.Millisecond})
	last := p.Call("cuStreamSynchronize")
	p.Exec()
	h.expect(t, p, cudaprobe.Done, last)
	h.expect(t, p, cudaprobe.Launched, p.Call("cuLaunchKernel"))
}

func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Neither one that is dropped while unwatched nor one that dies leaves anything.
func TestUnwatchedAndGone(t *testing.T) {
	const quiet = 20 * time.Millisecond
	h := watched(t, cudaprobe.Options{Quiet: quiet})
	p := h.built.Start(t)
	p.Open()
	track := func() {
		t.Helper()
		if err := h.Track(p.PID); err != nil {
			t.Fatal(err)
		}
	}
	gone := func() {
		t.Helper()
		h.Untrack(p.PID)
		await(t, "all probes are off", func() bool { return h.Stats().Detaching == 0 })
		if s := h.Stats(); s.Tracked != 0 || s.Unwatched != 0 {
			t.Errorf("%+v", s)
		}
	}
	track() // loads the programs
	gone()
	before := openFiles(t)
	track()
	h.becomesFast(t, p)
	gone()
	await(t, "all files are closed", func() bool { return openFiles(t) == before })
	p.CallTimes("cuLaunchKernel", enough)
	p.Call("cuStreamSynchronize")
	time.Sleep(2 * quiet)
	h.none(t)

	before = openFiles(t)
	track() // it begins anew
	h.becomesFast(t, p)
	p.Call("cuStreamSynchronize")
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "its end is noticed", func() bool { return h.Stats().Unwatched == 0 })
	gone()
	await(t, "all files are closed after its end", func() bool { return openFiles(t) == before })
}

func TestCloseWhileUnwatched(t *testing.T) {
	h, p := unwatched(t, cudaprobe.Options{Quiet: 50 * time.Millisecond})
	p.Hold("cuCtxSynchronize") // so that looks go on
	before := h.Stats().Looks
	await(t, "it is looked at twice", func() bool { return h.Stats().Looks >= before+2 })
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if e, open := <-h.events; open {
		t.Errorf("got %+v", e)
	}
	p.Release()
	p.CallTimes("cuLaunchKernel", enough) // it runs on
}
