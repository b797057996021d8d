package pidfd_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/pidfd"
	"github.com/laxity/laxity/internal/needtest"
)

func TestExit(t *testing.T) {
	w := newWatcher(t)
	p := start(t)
	process := watch(t, w, p.pid())
	if !w.Alive(process) {
		t.Error("a running process is not alive")
	}
	before := time.Now()
	p.end()
	exit := next(t, w)
	if exit.Process != process || exit.Time.Before(before) || exit.Time.After(time.Now()) || exit.ErrorBound < pidfd.WakeBound {
		t.Errorf("got %+v", exit)
	}
	if w.Alive(process) || w.Watched() != 0 {
		t.Error("it is still watched")
	}
}

func TestZombieHasEnded(t *testing.T) {
	w := newWatcher(t)
	p := start(t)
	process := watch(t, w, p.pid())
	p.end() // and nobody reaps it
	if exit := next(t, w); exit.Process != process {
		t.Errorf("got %+v", exit)
	}
	if err := unix.Kill(p.pid(), 0); err != nil {
		t.Fatal("the zombie should still be there:", err)
	}
	if _, err := w.Watch(p.pid()); !errors.Is(err, sensor.ErrGone) {
		t.Errorf("watching a zombie: %v, want ErrGone", err)
	}
}

func TestNoSuchProcess(t *testing.T) {
	w := newWatcher(t)
	p := start(t)
	p.end()
	p.reap()
	if _, err := w.Watch(p.pid()); err != nil && !errors.Is(err, sensor.ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
	if _, err := w.Watch(1 << 30); !errors.Is(err, sensor.ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

// The process ends with its last thread, not with its main thread.
func TestMainThreadExitIsNoEnd(t *testing.T) {
	w := newWatcher(t)
	p := startHelper(t, helperThreads)
	process := watch(t, w, p.pid())
	await(t, "the main thread to be a zombie", func() bool { return state(t, p.pid()) == 'Z' })
	if !w.Alive(process) {
		t.Error("it counts as ended, and its other threads run")
	}
	if again, err := w.Watch(p.pid()); err != nil || again != process {
		t.Errorf("watching it now: %v, %v", again, err)
	}
	none(t, w)
	p.kill()
	if exit := next(t, w); exit.Process != process {
		t.Errorf("got %+v", exit)
	}
}

func TestExecIsNoEnd(t *testing.T) {
	w := newWatcher(t)
	p := start(t, "sh", "-c", "read x; exec cat")
	process := watch(t, w, p.pid())
	fmt.Fprintln(p.stdin)
	await(t, "exec", func() bool {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid()))
		return strings.TrimSpace(string(comm)) == "cat"
	})
	if again := watch(t, w, p.pid()); again != process {
		t.Errorf("another process after exec: %v, was %v", again, process)
	}
	none(t, w)
	p.end()
	if exit := next(t, w); exit.Process != process {
		t.Errorf("got %+v", exit)
	}
}

func TestReusedPID(t *testing.T) {
	w := newWatcher(t)
	for range 300 {
		first := start(t)
		one := watch(t, w, first.pid())
		first.end()
		first.reap()
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, first.pid()-1), 0); err != nil {
			needtest.Root.Skip(t, "cannot choose the next PID:", err)
		}
		second := start(t)
		if second.pid() != first.pid() {
			second.end()
			second.reap()
			next(t, w)
			continue // somebody else forked in between
		}
		two := watch(t, w, second.pid())
		if one.Identity == two.Identity {
			t.Fatalf("two processes with one identity: %v", one)
		}
		if w.Alive(one) || !w.Alive(two) {
			t.Errorf("alive: first %v, second %v", w.Alive(one), w.Alive(two))
		}
		if exit := next(t, w); exit.Process != one {
			t.Errorf("got %+v, want the first one's", exit)
		}
		none(t, w)
		second.end()
		if exit := next(t, w); exit.Process != two {
			t.Errorf("got %+v, want the second one's", exit)
		}
		return
	}
	t.Skip("no PID was reused in 300 tries: the machine is too busy")
}

// What a history keeps must still name the process after a restart of ours.
func TestIdentityOutlivesTheWatcher(t *testing.T) {
	p := start(t)
	one, two := newWatcher(t), newWatcher(t)
	if a, b := watch(t, one, p.pid()), watch(t, two, p.pid()); a != b {
		t.Errorf("%v and %v", a, b)
	}
}

func TestTwiceIsOnce(t *testing.T) {
	w := newWatcher(t)
	p := start(t)
	if a, b := watch(t, w, p.pid()), watch(t, w, p.pid()); a != b || w.Watched() != 1 {
		t.Errorf("%v and %v, %d watched", a, b, w.Watched())
	}
	p.end()
	next(t, w)
	none(t, w)
}

func TestForget(t *testing.T) {
	w := newWatcher(t)
	forgotten, kept, late := start(t), start(t), start(t)
	w.Forget(watch(t, w, forgotten.pid()))
	keptProcess, lateProcess := watch(t, w, kept.pid()), watch(t, w, late.pid())
	forgotten.end()
	late.end()
	await(t, "the end to be seen", func() bool { return w.Watched() == 1 })
	w.Forget(lateProcess) // it has ended, and nobody took its exit
	w.Forget(lateProcess)
	kept.end()
	if exit := next(t, w); exit.Process != keptProcess {
		t.Errorf("got %+v", exit)
	}
	none(t, w)
}

// All end at once, and nobody reads meanwhile.
func TestThousand(t *testing.T) {
	w := newWatcher(t)
	const count = 1000
	group := startGroup(t, count)
	want := map[sensor.Process]bool{}
	for _, pid := range group.pids() {
		want[watch(t, w, pid)] = true
	}
	if len(want) != count {
		t.Fatalf("%d identities for %d processes", len(want), count)
	}
	group.end()
	await(t, "all ends to be seen", func() bool { return w.Watched() == 0 })
	for range count {
		exit := next(t, w)
		if !want[exit.Process] {
			t.Fatalf("not watched, or ended twice: %+v", exit)
		}
		delete(want, exit.Process)
	}
	none(t, w)
}

func TestClose(t *testing.T) {
	running, ended := start(t), start(t)
	files := openFiles(t)
	w, err := pidfd.New()
	if err != nil {
		t.Fatal(err)
	}
	watch(t, w, running.pid())
	watch(t, w, ended.pid())
	ended.kill()
	await(t, "the end to be seen", func() bool { return w.Watched() == 1 })
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if exit, open := <-w.Exits(); open {
		t.Errorf("got %+v after Close", exit)
	}
	if _, err := w.Watch(running.pid()); err == nil {
		t.Error("it still watches")
	}
	if now := openFiles(t); now != files {
		t.Errorf("%d open files before, %d after", files, now)
	}
}

func BenchmarkWatchForget(b *testing.B) {
	w := newWatcher(b)
	pid := os.Getpid()
	b.ReportAllocs()
	for b.Loop() {
		p, err := w.Watch(pid)
		if err != nil {
			b.Fatal(err)
		}
		w.Forget(p)
	}
}

func BenchmarkAlive(b *testing.B) {
	w := newWatcher(b)
	p := watch(b, w, os.Getpid())
	b.ReportAllocs()
	for b.Loop() {
		if !w.Alive(p) {
			b.Fatal("not alive")
		}
	}
}

// BenchmarkExit measures from the order to die to the event in user space.
func BenchmarkExit(b *testing.B) {
	w := newWatcher(b)
	var delays []time.Duration
	for b.Loop() {
		p := start(b)
		watch(b, w, p.pid())
		before := time.Now()
		p.kill()
		delays = append(delays, next(b, w).Time.Sub(before))
		p.reap()
	}
	b.ReportMetric(float64(median(delays).Microseconds()), "median-µs/exit")
}

// The name of a process that nobody watched is no other's.
func TestGone(t *testing.T) {
	w := newWatcher(t)
	watched := watch(t, w, start(t).cmd.Process.Pid)
	names := map[string]bool{watched.Identity: true}
	for _, started := range []time.Duration{time.Second, time.Second + 1} {
		gone := w.Gone(watched.PID, started)
		if gone.PID != watched.PID || gone != w.Gone(watched.PID, started) || w.Alive(gone) {
			t.Errorf("got %+v", gone)
		}
		names[gone.Identity] = true
	}
	if len(names) != 3 {
		t.Errorf("names %v, want three", names)
	}
}
