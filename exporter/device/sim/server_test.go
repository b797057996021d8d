package sim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
)

// line is a connection that speaks the protocol by hand.
type line struct {
	net.Conn
	answers *bufio.Reader
}

func dial(t testing.TB, s *simtest.Server) *line {
	t.Helper()
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &line{conn, bufio.NewReader(conn)}
}

func (l *line) ask(request string) string {
	fmt.Fprintln(l, request)
	answer, err := l.answers.ReadString('\n')
	if err != nil {
		return "closed"
	}
	return strings.TrimSuffix(answer, "\n")
}

func TestProtocol(t *testing.T) {
	s := simtest.Start(t, sim.Options{ContextTime: -1, Cards: []sim.Card{{Speed: sim.H200().Faster(1000)}}})
	l := dial(t, s)
	for _, step := range []struct{ request, answer string }{
		{"laxity-sim 1 tenant", "ok 1"},
		{"device 0", "ok GPU-00000000-0000-0000-0000-000000000000 151397597184 102000000000 19200000000 Simulated GPU"},
		{"device 1", "err device no such GPU: 1 of 1"},
		{"alloc 0 1", "err context no context on this GPU: 0"},
		{"open 0", "ok"},
		{"alloc 0 1048576", "ok 1099511627776"},
		{"alloc 0 0", "err invalid invalid argument: allocation of 0 bytes"},
		{"alloc 0 999999999999", "err memory out of GPU memory: asked for 953674 MiB, 143817 MiB free"},
		{"memory 0", "ok 150803054592 151397597184"},
		{"launch 0 1e6", "ok 1"},
		{"launchns 0 1000", "ok 2"},
		{"launch 0 -1", "err invalid invalid argument: -1 operations"},
		{"sync 0 0", "ok"},
		{"sync 0 9", "err invalid invalid argument: kernel 9 was not launched"},
		{"query 0 2", "ok 1"},
		{"copy 0 in 1000", "ok"},
		{"copy 0 out 1000", "ok"},
		{"free 0 1099511627776", "ok"},
		{"free 0 5", "err invalid invalid argument: nothing allocated at 0x5"},
		{"close 0", "ok"},
		{"nonsense", `err protocol protocol error: unknown request "nonsense"`},
		{"device 0", "closed"},
	} {
		if got := l.ask(step.request); got != step.answer {
			t.Errorf("%s: got %q, want %q", step.request, got, step.answer)
		}
	}
}

func TestBadInputIsAnsweredAndEndsTheConnection(t *testing.T) {
	s := simtest.Start(t, sim.Options{})
	for _, hello := range []string{
		"", "hello", "laxity-sim 2 tenant", "laxity-sim 1 root", "laxity-sim 1", strings.Repeat("x", 10_000), "\x00\xff",
	} {
		l := dial(t, s)
		if got := l.ask(hello); !strings.HasPrefix(got, "err protocol ") {
			t.Errorf("hello %.20q: got %q", hello, got)
		}
		if got := l.ask("device 0"); got != "closed" {
			t.Errorf("after hello %.20q: got %q", hello, got)
		}
	}
	for _, request := range []string{"", "open", "open x", "alloc 0", "alloc 0 -1", "alloc 0 1e3", "copy 0 up 1", "launch 0 x", "open 0 0", "read"} {
		l := dial(t, s)
		l.ask("laxity-sim 1 tenant")
		if got := l.ask(request); !strings.HasPrefix(got, "err protocol ") {
			t.Errorf("tenant's %q: got %q", request, got)
		}
	}
	for request, want := range map[string]string{"launch 0 NaN": "err invalid", "launch 0 Inf": "err invalid", "open -1": "err device"} {
		l := dial(t, s)
		l.ask("laxity-sim 1 tenant")
		if got := l.ask(request); !strings.HasPrefix(got, want) {
			t.Errorf("tenant's %q: got %q", request, got)
		}
	}
	l := dial(t, s)
	l.ask("laxity-sim 1 monitor")
	if got := l.ask("open 0"); !strings.HasPrefix(got, "err protocol ") {
		t.Errorf("monitor's open: got %q", got)
	}
}

func FuzzProtocol(f *testing.F) {
	s := simtest.Start(f, sim.Options{ContextTime: -1})
	for _, seed := range []string{"laxity-sim 1 tenant\nopen 0\nalloc 0 10\nlaunchns 0 1\nsync 0 0\n", "laxity-sim 1 monitor\nread\n", "\n\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		conn, err := net.Dial("unix", s.Socket)
		for errors.Is(err, syscall.EAGAIN) { // more than it has accepted so far: nobody waits for its answers
			runtime.Gosched()
			conn, err = net.Dial("unix", s.Socket)
		}
		if err != nil {
			t.Fatalf("the server is gone: %v", err)
		}
		conn.Write(data)
		conn.Close()
	})
}

func TestTwoHundredTenants(t *testing.T) {
	s := simtest.Start(t, sim.Options{ContextTime: -1, Cards: []sim.Card{{Speed: sim.H200().Faster(1e4)}}})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			l := dial(t, s)
			r := rand.New(rand.NewPCG(1, uint64(i)))
			if got := l.ask("laxity-sim 1 tenant"); got != "ok 1" {
				t.Errorf("hello: %q", got)
			}
			requests := []string{"open 0", "alloc 0 4096", "launchns 0 100000", "copy 0 in 4096", "sync 0 0", "memory 0"}
			l.ask("open 0")
			for range 20 {
				if got := l.ask(requests[r.IntN(len(requests))]); !strings.HasPrefix(got, "ok") {
					t.Errorf("got %q", got)
				}
			}
			if i%3 == 0 { // hang up in the middle of a request
				fmt.Fprint(l, "launch")
			}
			l.Close()
		})
	}
	wg.Wait()
	d := s.Dial(t)
	for {
		r, err := d.Read(t.Context())
		must(t, err)
		if len(r.GPUs[0].Processes) == 0 && r.GPUs[0].MemoryUsed == 0 {
			return
		}
	}
}

func TestReaderSurvivesTheServer(t *testing.T) {
	s := simtest.Start(t, sim.Options{})
	d := s.Dial(t)
	if _, err := d.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	for range 2 {
		if _, err := d.Read(t.Context()); err == nil {
			t.Fatal("read without a server")
		}
	}
	if _, err := sim.Dial(s.Socket); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("dial without a server: %v", err)
	}
	s.Resume(t)
	if _, err := d.Read(t.Context()); err != nil {
		t.Errorf("the server is back: %v", err)
	}
}

func TestReadOverTheSocketHeedsItsContext(t *testing.T) {
	s := simtest.Start(t, sim.Options{})
	d := s.Dial(t)
	release := s.HangReads()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	release()
	if _, err := d.Read(t.Context()); err != nil {
		t.Errorf("after the hang: %v", err)
	}
}

// A tenant that is killed with kernels queued: the one in flight runs on, the
// rest is dropped, all is free afterwards.
func TestKilledTenant(t *testing.T) {
	s := simtest.Start(t, sim.Options{ListDelay: -1})
	t.Setenv("LAXITY_SIM_KERNEL_SECONDS", "0.5")
	d := s.Dial(t)
	gpu := func() device.GPU {
		r, err := d.Read(t.Context())
		must(t, err)
		return r.GPUs[0]
	}
	before := gpu().MemoryUsed
	p := s.StartProcess(t, "--n", "64", "--kernels", "1000")
	p.Await(t, "launch")
	if g := gpu(); len(g.Processes) == 0 || g.MemoryUsed <= before {
		t.Errorf("the tenant is not listed, or has no memory: %+v, %d bytes before it", g, before)
	}
	must(t, p.Process.Kill())
	p.Wait(t)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		g := gpu()
		if len(g.Processes) == 0 && g.MemoryUsed == before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not free: %+v, %d bytes before it", g, before)
		}
	}
}

// A frozen tenant's kernels go on, its host phase and its copies do not.
func TestFrozenTenant(t *testing.T) {
	s := simtest.Start(t, sim.Options{Cards: []sim.Card{{Speed: sim.Speed{Flops: 1e9, CopyIn: 1e8, CopyOut: 1e6}}}})
	// 2·64³ operations at 1e9/s would be nothing: kernels of 0.3 s, copy out of 16 KiB: 16 ms in pieces of 10 ms.
	const kernel = 300 * time.Millisecond
	t.Setenv("LAXITY_SIM_KERNEL_SECONDS", "0.3")
	p, launched := stoppedWithin(t, s, kernel)
	d := s.Dial(t)
	for { // the kernel ends while its process is stopped: nothing ran within the last sample
		r, err := d.Read(t.Context())
		must(t, err)
		if r.Time.Sub(launched) > kernel && r.GPUs[0].Utilization == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	thawed := time.Now()
	must(t, p.Process.Signal(syscall.SIGCONT))
	if end := p.Await(t, "copyout_end").Time; end.Before(thawed) {
		t.Errorf("copied out at %v while it was stopped until %v", end, thawed)
	}
}

// stoppedWithin starts a tenant with one kernel, and stops it while that runs. On a busy machine the
// kernel may have ended by then: another tenant is started.
func stoppedWithin(t *testing.T, s *simtest.Server, kernel time.Duration) (p *simtest.Process, launched time.Time) {
	t.Helper()
	const tries = 20
	for range tries {
		p = s.StartProcess(t, "--n", "64", "--kernels", "1")
		launched = p.Await(t, "launch").Time
		err := p.Process.Signal(syscall.SIGSTOP)
		if err == nil { // the signal needs a moment to arrive; a tenant that ended is no child any more
			err = unix.Waitid(unix.P_PID, p.PID, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		}
		took := time.Since(launched)
		if err == nil && took < kernel {
			return p, launched
		}
		t.Logf("stopped %v after its launch (%v): another one", took.Round(time.Millisecond), err)
		_ = p.Process.Kill() // it may have ended
		_ = p.Wait(t)
	}
	t.Fatalf("none of %d tenants was stopped within %v", tries, kernel)
	return nil, time.Time{}
}
