package memory_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// guardFolder names a folder for a guard that this program is to be.
const guardFolder = "LAXITY_TEST_GUARD"

// beGuard guards the process whose PID is in the folder, lets nothing pass and
// answers nobody, until it is killed.
func beGuard() {
	folder := os.Getenv(guardFolder)
	pid, err := strconv.Atoi(os.Getenv("LAXITY_TEST_PID"))
	if err != nil {
		panic(err)
	}
	g, err := memory.New(memory.Options{
		Name: filepath.Base(folder), Decider: &script{verdict: memory.Wait}, MaxWait: time.Hour,
		Container: func(p int) (string, bool, error) { return "a", p == pid, nil },
		Usage:     func(context.Context) (map[string]task.Usage, error) { return map[string]task.Usage{}, nil },
	})
	if err != nil {
		panic(err)
	}
	neverHangs(g)
	if err := g.Renew(time.Hour); err != nil {
		panic(err)
	}
	go func() {
		g.Cover([]memory.Target{{ID: "a", PID: pid, GPUs: []string{gpu}, Limit: 1}})
		for _, stage := range []struct {
			name string
			is   func(memory.Report) bool
		}{
			{"guards", func(v memory.Report) bool { return len(v.PIDs) == 1 }},
			{"waits", func(v memory.Report) bool { return v.Waiting == 1 }},
		} {
			for !stage.is(g.Report()["a"]) {
				time.Sleep(time.Millisecond)
			}
			if err := os.WriteFile(filepath.Join(folder, stage.name), nil, 0o600); err != nil {
				panic(err)
			}
		}
	}()
	panic(g.Run(context.Background()))
}

// A guard that is killed leaves nobody stopped: the record tells whom to continue.
func TestKilledGuard(t *testing.T) {
	r := start(t, nil) // skips where guarding cannot be
	p := r.built.Start(t)
	p.Open()
	folder := filepath.Join(t.TempDir(), "laxity-test-killed-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), guardFolder+"="+folder, "LAXITY_TEST_PID="+strconv.Itoa(p.PID))
	other.Stderr = t.Output()
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop.Remove(filepath.Base(folder)) })
	await := func(stage string) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(folder, stage)); err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the other guard never", stage)
			}
		}
	}
	await("guards")
	called := p.BeginAlloc("cuMemAlloc_v2", mib, 10, 1)
	await("waits")
	// Its hold is on record a moment before its thread stops.
	until(t, func() bool { return state(p.PID) == "T" }, r.reports("a"))
	if err := other.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	killed := time.Now()
	n, err := stop.ReleaseAll(t.Context(), stop.Options{Name: filepath.Base(folder)})
	if n != 1 || err != nil {
		t.Fatalf("let %d go: %v", n, err)
	}
	took := time.Since(killed)
	t.Logf("it took %v", took.Round(time.Millisecond))
	if took > patience { // some ms, but a busy machine may stall
		t.Error("it hung")
	}
	if a := called(); a.Count != 10 {
		t.Errorf("%+v", a)
	}
}

// Where somebody traces a process its allocation runs, and that is told.
func TestTracedFailsOpen(t *testing.T) {
	s := &script{verdict: memory.Wait}
	r := start(t, func(o *memory.Options) { o.Decider = s })
	p := r.join(t, 10*mib)
	called := p.BeginAlloc("cuMemAlloc_v2", 20*mib, 1, 1)
	r.waiting(t)
	traced, free := make(chan error), make(chan struct{})
	go func() { // a tracer is a thread, which ends with this goroutine
		runtime.LockOSThread()
		traced <- unix.PtraceSeize(p.PID)
		<-free
		_ = unix.PtraceInterrupt(p.PID)
		var status unix.WaitStatus
		_, _ = unix.Wait4(p.PID, &status, unix.WALL, nil)
		_ = unix.PtraceDetach(p.PID)
	}()
	if err := <-traced; err != nil {
		needtest.Tracing.Skip(t, "cannot trace:", err)
	}
	s.set(memory.Deny)
	r.Reconsider()
	select {
	case why := <-r.failed:
		if !strings.Contains(why, "traced") {
			t.Error(why)
		}
	case <-time.After(patience):
		t.Fatal("nobody was told")
	}
	close(free)
	if a := called(); a.Count != 1 {
		t.Errorf("%+v", a)
	}
	if v := r.Report()["a"]; v.FailedOpen == 0 || v.Denied != 0 {
		t.Errorf("%+v", v)
	}
}
