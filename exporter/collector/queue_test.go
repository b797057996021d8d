package collector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/collector"
	"github.com/laxity/laxity/exporter/task"
)

// Estimates, work, slack, and what a GPU still has to do.
func TestQueueOfAGPU(t *testing.T) {
	s := node()
	s.Containers = []task.Container{withDeadline("runs", 9), withDeadline("waits", 9), withDeadline("first", 9), withDeadline("batch", 0)}
	s.Containers[2].Image = "never-ran"
	held := begun("waits", -2, 20)
	held.State, held.StateSince = task.Held, at(-2)
	second := begun("waits", -1, 21)
	second.State = task.Held
	s.Tasks = []task.Task{begun("batch", -5, 0), begun("runs", -3, 6), held, second, begun("first", -1, 8)}
	gone := over("gone", -400, -390, -396) // of an image that another container has too
	gone.Image = "img:1"
	s.Ended = []task.Task{over("runs", -20, -11, -15), over("waits", -40, -31, -33), gone}
	c := newScene(s, collector.Options{})
	want := `gpu_demand_seconds{gpu="GPU-a"} 24
gpu_demand_seconds{gpu="GPU-b"} 0
gpu_image_task_duration_seconds{image="img:1"} 7
gpu_open{gpu="GPU-a"} 1
gpu_open{gpu="GPU-b"} 1
gpu_task_remaining_seconds{container="runs",gpu="GPU-a"} 2
gpu_task_remaining_seconds{container="waits",gpu="GPU-a"} 7
gpu_task_slack_seconds{container="first",gpu="GPU-a"} -2
gpu_task_slack_seconds{container="runs",gpu="GPU-a"} 4
gpu_task_slack_seconds{container="waits",gpu="GPU-a"} -4
gpu_task_work_seconds{container="first",gpu="GPU-a"} 8
gpu_task_work_seconds{container="runs",gpu="GPU-a"} 2
gpu_task_work_seconds{container="waits",gpu="GPU-a"} 14
gpu_unfinished_tasks{gpu="GPU-a"} 5
gpu_unfinished_tasks{gpu="GPU-b"} 0
`
	check := func(want string, metrics ...string) {
		t.Helper()
		var got strings.Builder
		for line := range strings.Lines(format(t, c, metrics...)) {
			if !strings.HasPrefix(line, "#") {
				got.WriteString(line)
			}
		}
		if got.String() != want {
			t.Errorf("got\n%s\nwant\n%s", got.String(), want)
		}
	}
	check(want, "gpu_demand_seconds", "gpu_image_task_duration_seconds", "gpu_open", "gpu_task_remaining_seconds",
		"gpu_task_slack_seconds", "gpu_task_work_seconds", "gpu_unfinished_tasks")
	// Longer than the last one took: it has not ended, so a tenth is left. One past its deadline
	// without an estimate needs nothing more that is known.
	c.now = at(30)
	check(`gpu_task_work_seconds{container="first",gpu="GPU-a"} 0
gpu_task_work_seconds{container="runs",gpu="GPU-a"} 0.5
gpu_task_work_seconds{container="waits",gpu="GPU-a"} 14
`, "gpu_task_work_seconds")
}

// A container without an estimate of its own takes that of its image, and of a task whose GPU
// is not known nothing is said by GPU.
func TestEstimateOfTheImage(t *testing.T) {
	s := node()
	s.Containers = []task.Container{withDeadline("new", 9)}
	lost := begun("new", -1, 8)
	lost.GPUs = []string{task.UnknownGPU}
	s.Tasks = []task.Task{begun("new", -1, 8), lost}
	other := over("other", -20, -11, -15)
	other.Image = "img:1"
	s.Ended = []task.Task{other}
	text := format(t, newScene(s, collector.Options{}), "gpu_task_work_seconds", "gpu_task_remaining_seconds")
	if !strings.Contains(text, `gpu_task_work_seconds{container="new",gpu="GPU-a"} 4`) || strings.Contains(text, "remaining") || strings.Contains(text, "unknown") {
		t.Error(text)
	}
}

// Below 90 % there is nothing to tell: the alert is over where the series ends.
func TestMemoryPressure(t *testing.T) {
	for used, want := range map[uint64]string{899: "", 900: " 0.9\n", 1000: " 1\n"} {
		s := node()
		s.GPUs[0].MemoryTotal, s.GPUs[0].MemoryUsed = 1000, used
		text := format(t, newScene(s, collector.Options{}), "gpu_memory_pressure_ratio")
		if !strings.HasSuffix(text, want) || want == "" && text != "" {
			t.Errorf("%d of 1000: %q, want %q", used, text, want)
		}
	}
}

// What closes a GPU: by prediction nothing of the past, by the paper a miss of a container that
// is there, until it hits again or is gone.
func TestOpenAndProvisionable(t *testing.T) {
	miss, hit := over("web", -20, -11, -10), over("web", -8, 1, -7)
	for name, tc := range map[string]struct {
		change              func(s *task.Snapshot)
		open, provisionable bool
	}{
		"idle":     {func(*task.Snapshot) {}, true, true},
		"a miss":   {func(s *task.Snapshot) { s.Ended = []task.Task{miss} }, true, false},
		"then hit": {func(s *task.Snapshot) { s.Ended = []task.Task{hit, miss} }, true, true},
		"then gone": {func(s *task.Snapshot) {
			s.Ended, s.Containers = []task.Task{miss}, nil
		}, true, true},
		"overdue, not ended": {func(s *task.Snapshot) { s.Tasks = []task.Task{begun("web", -20, -11)} }, true, true},
		"memory full":        {func(s *task.Snapshot) { s.GPUs[0].MemoryUsed = 995 }, false, false},
		"used by nobody knows whom": {func(s *task.Snapshot) {
			s.GPUs[0].Utilization = 1
		}, false, false},
		"used by a task with a deadline": {func(s *task.Snapshot) {
			s.GPUs[0].Utilization, s.Tasks = 1, []task.Task{begun("web", -1, 8)}
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := node()
			s.Containers = []task.Container{withDeadline("web", 9)}
			tc.change(s)
			text := format(t, newScene(s, collector.Options{}), "gpu_open", "gpu_memory_provisionable_bytes", "gpu_memory_idle_bytes")
			free := s.GPUs[0].MemoryTotal - s.GPUs[0].MemoryUsed
			if strings.Contains(text, `gpu_open{gpu="GPU-a"} 1`) != tc.open ||
				strings.Contains(text, fmt.Sprintf(`gpu_memory_provisionable_bytes{gpu="GPU-a"} %d`, free)) != tc.provisionable ||
				strings.Contains(text, fmt.Sprintf(`gpu_memory_idle_bytes{gpu="GPU-a"} %d`, free)) != (tc.open && !strings.Contains(name, "by a task")) {
				t.Errorf("want open %v, provisionable %v:\n%s", tc.open, tc.provisionable, text)
			}
		})
	}
}

// What the alerts read is there only while there is something to tell.
func TestWhatAlertsRead(t *testing.T) {
	s := node()
	s.Containers = []task.Container{withDeadline("web", 10)}
	s.Ended = []task.Task{over("web", -100, -90, -92)} // 8 s
	s.Tasks = []task.Task{begun("web", 0, 10)}
	c := newScene(s, collector.Options{EndLag: 15 * time.Millisecond})
	check := func(when float64, state task.State, want string) {
		t.Helper()
		c.now = at(when)
		if k := &s.Tasks[0]; state != k.State {
			if k.State != task.Running {
				k.HeldSeconds += task.SecondsOf(c.now.Sub(k.StateSince))
			}
			k.State, k.StateSince = state, c.now
		}
		var got []string
		for line := range strings.Lines(format(t, c, "gpu_task_at_risk_float_seconds", "gpu_task_late_seconds", "gpu_stopped_seconds")) {
			if !strings.HasPrefix(line, "#") {
				got = append(got, strings.Replace(strings.TrimSpace(line), `{container="web",gpu="GPU-a"}`, "", 1))
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("at %v s, %s: %q, want %q", when, state, text, want)
		}
	}
	const stood = `gpu_stopped_seconds{container="web",gpu="GPU-a",state="held"} `
	check(0, task.Running, "")
	check(1, task.Held, stood+"0")
	check(2.5, task.Held, stood+"1.5")
	// It has run 1 s of 8, and there are 6.5 s left: it was put to the front too late. It stays
	// at risk as it runs.
	check(3.5, task.Held, stood+"2.5, gpu_task_at_risk_float_seconds 6.5")
	check(3.5, task.Running, "gpu_task_at_risk_float_seconds 6.5")
	check(9, task.Running, "gpu_task_at_risk_float_seconds 1")
	check(10.01, task.Running, "gpu_task_at_risk_float_seconds -0.01, gpu_task_late_seconds 0.01")
	check(11, task.Running, "gpu_task_at_risk_float_seconds -1, gpu_task_late_seconds 1")
	missed := over("web", 0, 10, 12)
	s.Tasks, s.Ended = []task.Task{begun("web", 12, 22)}, []task.Task{missed}
	check(13, task.Running, "gpu_task_at_risk_float_seconds 9, gpu_task_late_seconds 2") // 12 s, now
	s.Ended = []task.Task{over("web", 12, 22, 14), missed}
	s.Tasks[0] = begun("web", 14, 24)
	check(15, task.Running, "") // the last one was in time

	// A busy interval may have ended when it passes its deadline: that is known a little later.
	s.Containers[0].Spec.Release = task.ReleaseBusy
	s.Ended = []task.Task{over("web", 13, 14, 13.5)}
	check(24.01, task.Running, "")
	check(24.25, task.Running, "gpu_task_late_seconds 0.25")

	// A request ends before an alert can help.
	s.Containers = []task.Container{withDeadline("web", 0.5)}
	for took, want := range map[float64]string{0.9: "", 1: "gpu_task_at_risk_float_seconds 0.4"} {
		s.Ended = []task.Task{over("web", 14, 24, 14+took)}
		s.Tasks[0] = begun("web", 16, 16.5)
		check(16.1, task.Running, want)
	}
	s.Ended = []task.Task{missed}
	s.Tasks[0] = begun("web", 611, 650)
	check(611.9, task.Running, "gpu_task_late_seconds 2")
	check(612, task.Running, "") // ten minutes later
}

// P2's nodeFloattime counts the last task of each container that is there, the least of its GPUs.
func TestFloatOfTheNode(t *testing.T) {
	s := node()
	s.Containers = []task.Container{withDeadline("one", 9), withDeadline("late", 9), withDeadline("both", 9), withDeadline("first", 9), withDeadline("batch", 0)}
	onB := over("both", -9, 6, 0)
	onB.GPUs = []string{gpuB}
	c := newScene(s, collector.Options{})
	if text := format(t, c, "laxity_exporter_float_seconds"); !strings.HasSuffix(text, " +Inf\n") {
		t.Error(text)
	}
	s.Tasks = []task.Task{begun("first", -1, 8)}
	s.Ended = []task.Task{over("one", -9, 100, 0), over("one", -20, 1, -10), over("late", -9, -3, 0), over("both", -9, 7, 0), onB,
		over("gone", -9, 1000, 0), over("batch", -9, 0, 0)}
	if text := format(t, c, "laxity_exporter_float_seconds"); !strings.HasSuffix(text, " 103\n") {
		t.Error(text)
	}
}
