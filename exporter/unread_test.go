package exporter_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/containertest"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/sensor/uprobe"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

// run is one life of a program that uses CUDA.
type run struct {
	pid           int
	works         bool
	before, after time.Time // of cuInit
	ended         time.Time // when its parent knew
}

// play runs the program to its end in the control group.
func play(t *testing.T, built cudatest.Built, group string, works bool) run {
	cmd := exec.Command("sh", "-c", `echo $$ > "$1"/cgroup.procs && exec "$2" "$3"`, "sh", group, built.Program, built.Library)
	r := run{works: works}
	say := "open\ncall cuInit\n"
	if works {
		say += "call cuCtxCreate_v4\ncall cuLaunchKernel\n"
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(say), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	r.ended, r.pid = time.Now(), cmd.Process.Pid
	for line := range strings.Lines(out.String()) {
		var name string
		var before, after int64
		if _, err := fmt.Sscan(line, &name, &before, &after); err == nil && name == "cuInit" {
			r.before, r.after = time.Unix(0, before), time.Unix(0, after)
		}
	}
	return r
}

// The exporter gets its turn only when all tasks are over: each is counted, with
// its true start and end.
func TestTasksThatEndBeforeTheirEventsAreRead(t *testing.T) {
	needUprobes(t)
	id := containertest.ID(t.Name() + rand.Text())
	group := "/sys/fs/cgroup/devices" // cgroup v1
	if _, err := os.Stat(group); err != nil {
		group = "/sys/fs/cgroup"
	}
	group = filepath.Join(group, id)
	if err := os.Mkdir(group, 0o755); err != nil {
		needtest.Cgroup.Skip(t, "needs to make control groups:", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	built := cudatest.Build(t)
	starts, err := uprobe.New(uprobe.Options{}) // keeps what happens from here on
	if err != nil {
		t.Fatal(err)
	}
	loaded := built.Start(t)
	loaded.Open()
	if err := starts.Discover(loaded.PID); err != nil {
		t.Fatal(err)
	}

	const count = 60 // of which 50 work
	runs := make([]run, count)
	var all sync.WaitGroup
	limit := make(chan struct{}, 8)
	for i := range runs {
		limit <- struct{}{}
		all.Go(func() {
			runs[i] = play(t, built, group, i%6 > 0)
			<-limit
		})
	}
	all.Wait()

	gpu := simtest.Start(t, sim.Options{})
	engine := &containertest.Fake{}
	engine.Put(container.Container{ID: id, Name: "short", Labels: map[string]string{task.LabelDeadline: "9s"}})
	e := startWith(t, exporter.Options{Node: "test", Device: "sim:" + gpu.Socket, Parts: exporter.Parts{
		Containers: engine,
		Starts:     []tracker.StartSensor{{Source: task.SourceUprobe, Open: func() (sensor.Starts, error) { return starts, nil }}},
	}})
	s := e.await("all tasks", func(s *task.Snapshot) bool { return len(s.Ended) >= 50 })
	if len(s.Ended) != 50 || len(s.Tasks) != 0 {
		t.Errorf("%d ended tasks and %d unfinished ones, want 50 and none", len(s.Ended), len(s.Tasks))
	}
	for _, r := range runs {
		var got []task.Task
		for _, x := range s.Ended {
			if x.PID == r.pid {
				got = append(got, x)
			}
		}
		if !r.works {
			if len(got) != 0 {
				t.Errorf("counted, without a context: %+v", got)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%d tasks of process %d, want 1", len(got), r.pid)
			continue
		}
		x := got[0]
		if x.Start.Time.Before(r.before) || x.Start.Time.Add(-x.Start.ErrorBound.Duration()).After(r.after) || x.Start.Source != task.SourceUprobe {
			t.Errorf("start %+v, not within cuInit from %v to %v", x.Start, r.before, r.after)
		}
		if x.End.Time.Before(r.after) || x.End.Time.Add(-x.End.ErrorBound.Duration()).After(r.ended) || x.End.Source != task.SourceTracepoint {
			t.Errorf("end %+v, not between cuInit and %v", x.End, r.ended)
		}
		if x.ContainerID != id || x.Outcome() != task.Hit || len(x.GPUs) != 1 {
			t.Errorf("task %+v", x)
		}
	}
}
