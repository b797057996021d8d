package pidfd_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/pidfd"
)

// patience only bounds a failure.
const patience = 30 * time.Second

// helperVar makes this test binary a program to be watched.
const (
	helperVar     = "LAXITY_TEST_HELPER"
	helperThreads = "threads" // the main thread exits, the others go on
)

func TestMain(m *testing.M) {
	if os.Getenv(helperVar) == helperThreads {
		runtime.LockOSThread() // TestMain runs on the main thread
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		// One more thread than the exiting one must be there to run the goroutine.
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	os.Exit(m.Run())
}

func init() {
	if os.Getenv(helperVar) != "" {
		runtime.LockOSThread() // init runs on the main thread; so TestMain will
	}
}

// process runs until its input ends.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func start(t testing.TB, command ...string) *process {
	t.Helper()
	if len(command) == 0 {
		command = []string{"cat"}
	}
	return run(t, exec.Command(command[0], command[1:]...))
}

func startHelper(t testing.TB, helper string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVar+"="+helper)
	return run(t, cmd)
}

func run(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t, cmd, stdin}
	t.Cleanup(func() {
		p.kill()
		p.reap()
	})
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }
func (p *process) end()     { _ = p.stdin.Close() }
func (p *process) kill()    { _ = p.cmd.Process.Kill() }
func (p *process) reap()    { _ = p.cmd.Wait() }

// group is many processes that end together.
type group struct {
	commands []*exec.Cmd
	stdin    *os.File
}

func startGroup(t testing.TB, count int) *group {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g := &group{stdin: w}
	t.Cleanup(func() {
		g.end()
		for _, cmd := range g.commands {
			_ = cmd.Wait()
		}
	})
	for range count {
		cmd := exec.Command("cat")
		cmd.Stdin = r
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		g.commands = append(g.commands, cmd)
	}
	return g
}

func (g *group) end() { _ = g.stdin.Close() }

func (g *group) pids() []int {
	var pids []int
	for _, cmd := range g.commands {
		pids = append(pids, cmd.Process.Pid)
	}
	return pids
}

func newWatcher(t testing.TB) *pidfd.Watcher {
	t.Helper()
	w, err := pidfd.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func watch(t testing.TB, w *pidfd.Watcher, pid int) sensor.Process {
	t.Helper()
	p, err := w.Watch(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func next(t testing.TB, w *pidfd.Watcher) sensor.Exit {
	t.Helper()
	select {
	case exit := <-w.Exits():
		return exit
	case <-time.After(patience):
		t.Fatal("no exit came")
		return sensor.Exit{}
	}
}

// none checks that no exit waits. A marker proves it without a delay: ends are
// told in order, so that what came before the marker's would come first.
func none(t testing.TB, w *pidfd.Watcher) {
	t.Helper()
	marker := start(t)
	want := watch(t, w, marker.pid())
	marker.kill()
	if exit := next(t, w); exit.Process != want {
		t.Errorf("got %+v, want none", exit)
	}
}

func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			t.Fatal("waited in vain for", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func state(t testing.TB, pid int) byte {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return stat[bytes.LastIndexByte(stat, ')')+2]
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
