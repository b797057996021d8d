package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

// pair is a guard, and two containers whose processes have loaded a driver of their own each.
type pair struct {
	*rig
	a, b   *cudatest.Program
	failed sync.Map // container and why it may get more than its limit
	asked  sync.Map // PIDs whose container the guard wanted to know
}

func startPair(t *testing.T) *pair {
	t.Helper()
	r := &pair{}
	r.rig = start(t, func(o *memory.Options) {
		of := o.Container
		o.Container = func(pid int) (string, bool, error) { r.asked.Store(pid, true); return of(pid) }
		o.Failed = func(id, why string) { r.failed.Store(id+": "+why, true) }
	})
	r.a, r.b = r.built.Start(t), cudatest.Build(t).Start(t)
	r.a.Open()
	r.b.Open()
	return r
}

// joins makes the processes members of their containers.
func (r *pair) joins() {
	r.members.Store(r.a.PID, "a")
	r.members.Store(r.b.PID, "b")
}

func (r *pair) both() []memory.Target {
	return []memory.Target{
		{ID: "a", PID: r.a.PID, GPUs: []string{gpu}, Limit: 100 * mib}, {ID: "b", PID: r.b.PID, GPUs: []string{gpu}, Limit: 100 * mib},
	}
}

func (r *pair) coverBoth() { r.Cover(r.both()) }

// watchBoth covers containers without processes, until the drivers of both have their probes.
func (r *pair) watchBoth(t *testing.T) {
	t.Helper()
	r.coverBoth()
	for _, p := range []*cudatest.Program{r.a, r.b} {
		until(t, func() bool { _, asked := r.asked.Load(p.PID); return asked }, r.reports("a"))
	}
}

// hold makes whoever opens or reads the driver of a hang.
func (r *pair) hold(t *testing.T) (wait, release func()) {
	t.Helper()
	return cudatest.Hold(t, r.built.Library, unix.FAN_OPEN_PERM|unix.FAN_ACCESS_PERM)
}

// awaits waits until the process of a container is guarded.
func (r *pair) awaits(t *testing.T, id string, p *cudatest.Program) {
	t.Helper()
	report := r.reports(id)
	until(t, func() bool { v := report(); return slices.Contains(v.PIDs, p.PID) && v.Obstacle == "" }, report)
}

// fails waits until a container may get more than its limit, for this reason.
func (r *pair) fails(t *testing.T, id, why string) {
	t.Helper()
	until(t, func() bool { return r.hasFailed(id + ": " + why) }, r.reports(id))
}

func (r *pair) hasFailed(prefix string) (has bool) {
	r.failed.Range(func(key, _ any) bool {
		has = has || strings.HasPrefix(key.(string), prefix)
		return true
	})
	return has
}

const (
	unreadable = "its libcuda cannot be read"
	short      = 100 * time.Millisecond // how long files may be read where that they hang is to be told
)

// A container whose files hang when it is searched delays no other one. It is reported, and guarded once they
// can be read.
func TestSearchThatHangsDelaysNoOther(t *testing.T) {
	r := startPair(t)
	r.joins()
	wait, release := r.hold(t)
	r.coverBoth()
	wait()
	r.awaits(t, "b", r.b)
	both := r.both()
	r.Cover(both[1:])
	until(t, func() bool { _, covered := r.Report()["a"]; return !covered }, r.reports("a"))
	r.SetFileLimit(short)
	r.Cover(both)
	r.fails(t, "a", unreadable)
	if r.hasFailed("b") {
		t.Error("the other one may get more than its limit")
	}
	release()
	r.awaits(t, "a", r.a)
}

// Nor does one whose files hang when a process calls cuInit.
func TestStartThatHangsDelaysNoOther(t *testing.T) {
	r := startPair(t)
	r.watchBoth(t)
	r.SetFileLimit(short)
	r.joins()
	wait, release := r.hold(t)
	r.a.Call("cuInit")
	wait()
	r.b.Call("cuInit")
	r.awaits(t, "b", r.b)
	r.fails(t, "a", unreadable)
	if v := r.Report()["a"]; !strings.Contains(v.Obstacle, unreadable) || len(v.PIDs) > 0 {
		t.Errorf("%+v", v)
	}
	release()
	r.awaits(t, "a", r.a)
}

// Who comes to the container while one of its processes hangs waits for that, also if that has been killed; it is
// told, and guarded once the files can be read.
func TestWhoWaitsBehindAKilledProcessIsTold(t *testing.T) {
	r := startPair(t)
	r.watchBoth(t)
	r.SetFileLimit(short)
	r.members.Store(r.a.PID, "a")
	r.members.Store(r.b.PID, "a")
	wait, release := r.hold(t)
	r.a.Call("cuInit")
	wait()
	if err := unix.Kill(r.a.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.b.Call("cuInit")
	r.fails(t, "a", unreadable) // perhaps for the killed one, before the guard knew the other one
	report := r.reports("a")
	told := fmt.Sprintf("process %d: %s", r.b.PID, unreadable)
	until(t, func() bool { return strings.HasPrefix(report().Obstacle, told) }, report)
	release()
	r.awaits(t, "a", r.b)
}

// Nor does one whose files hang when a process adds memory to a graph: that runs, and counts as failed open.
func TestGraphThatHangsDelaysNoOther(t *testing.T) {
	r := startPair(t)
	r.joins()
	r.coverBoth()
	r.awaits(t, "a", r.a)
	r.awaits(t, "b", r.b)
	wait, release := r.hold(t)
	called := r.a.BeginAlloc("cuGraphAddMemAllocNode", mib, 1, 1)
	wait()
	answered := make(chan cudatest.Allocated, 1)
	go func() { answered <- r.b.Alloc("cuMemAlloc_v2", 200*mib, 1) }()
	select {
	case a := <-answered:
		if a.Result != cudatest.OutOfMemory {
			t.Errorf("the other one: %+v", a)
		}
	case <-time.After(patience):
		release()
		t.Fatal("the other one is not answered")
	}
	if why := r.Waits()["a"]; why == "" {
		t.Error("it stands without a reason")
	}
	r.SetFileLimit(short)
	if a := called(); a.Count != 1 || r.Report()["a"].FailedOpen != 1 {
		t.Errorf("%+v; %+v", a, r.Report()["a"])
	}
	r.fails(t, "a", "the memory of its graphs is not seen")
	release()
	report := r.reports("a")
	until(t, func() bool {
		before := report().FailedOpen
		return r.a.Alloc("cuGraphAddMemAllocNode", mib, 1).Count == 1 && report().FailedOpen == before
	}, report)
}

// The guard ends while files hang.
func TestEndsWhileFilesHang(t *testing.T) {
	built := cudatest.Build(t)
	p := built.Start(t)
	p.Open()
	wait, release := cudatest.Hold(t, built.Library, unix.FAN_OPEN_PERM|unix.FAN_ACCESS_PERM) // until the guard has ended
	var late *time.Timer
	t.Cleanup(func() {
		if late != nil {
			late.Stop()
		}
	})
	r := start(t, nil)
	t.Cleanup(func() { late = time.AfterFunc(patience, func() { t.Error("it does not end"); release() }) })
	r.members.Store(p.PID, "a")
	r.cover(p.PID, mib)
	wait()
}
