package admission

import (
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/exporter/task"
)

const gpu = "GPU-0"

// judge is the actuator's core on a node with one GPU, in virtual time.
type judge struct {
	core *core.Core
	now  time.Time
	snap task.Snapshot
}

// learned is how many requests of each image its history has.
const learned = 32

// newJudge makes one that has seen each server alone before, and has a container of class batch now.
func newJudge(all []server, seed uint64) *judge {
	book := estimate.New()
	for i, s := range all {
		teach(book, i, alone(s, seed+uint64(i), learned))
	}
	j := &judge{now: epoch.Add(time.Hour)}
	j.core = core.New(core.Options{
		Node: "sim", Config: config.Config{}.WithDefaults(), Leases: lease.New(), History: book, Divides: true,
		MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour,
	}, j.now)
	j.snap = task.Snapshot{Run: "r", Health: task.Health{DeviceUp: true, EngineUp: true}, GPUs: []task.GPU{{UUID: gpu, MemoryTotal: 100, Utilization: 1}}}
	j.snap.Containers = []task.Container{{ID: "trainer", Name: "trainer", Image: "trainer", Processes: []task.Process{{PID: 1, GPUs: []string{gpu}}},
		Spec: task.Spec{Managed: true, Class: task.ClassBatch, Release: task.ReleaseProcess}}}
	j.snap.Tasks = []task.Task{{ID: "trainer", PID: 1, Container: "trainer", ContainerID: "trainer", GPUs: []string{gpu}, State: task.Running, Start: task.Mark{Time: j.now}}}
	j.look()
	return j
}

// teach shows a history what a server did.
func teach(b *estimate.Book, i int, busy []interval) {
	s := task.Snapshot{Health: task.Health{DeviceUp: true}, GPUs: []task.GPU{{UUID: gpu}}, Containers: []task.Container{container(i, 0)}}
	for _, is := range busy {
		t := request(i, is.start, 0)
		s.Time, s.Tasks = is.start, []task.Task{t}
		b.Observe(&s)
		t.State, t.End = task.Ended, &task.Mark{Time: is.end}
		s.Time, s.Tasks, s.Ended = is.end, nil, append([]task.Task{t}, s.Ended...)
		b.Observe(&s)
	}
}

func container(i int, deadline time.Duration) task.Container {
	return task.Container{ID: name(i), Name: name(i), Image: name(i), Processes: []task.Process{{PID: 100 + i, GPUs: []string{gpu}}},
		Spec: task.Spec{Managed: true, Deadline: task.SecondsOf(deadline), Class: task.ClassDeadline, Release: task.ReleaseBusy}}
}

func request(i int, at time.Time, deadline time.Duration) task.Task {
	t := task.Task{ID: name(i) + "/" + at.Format(time.RFC3339Nano), PID: 100 + i, Container: name(i), ContainerID: name(i), GPUs: []string{gpu}, State: task.Running, Start: task.Mark{Time: at}}
	if deadline > 0 {
		t.Deadline = at.Add(deadline)
	}
	return t
}

// ask is `laxity run --require`, for the server i.
func (j *judge) ask(i int, s server) (may bool, err error) {
	a, err := j.core.AskAdmission(j.now, admission.Question{GPU: gpu, Image: name(i), Server: true, Deadline: s.deadline})
	return a.Result == admission.Met, err
}

// start begins the server i with its first request. It reports whether the core says, on the first snapshot that
// has it, that the deadline cannot be met; and what the next snapshots add.
func (j *judge) start(i int, s server) (told, toldLater bool) {
	j.now = j.now.Add(time.Second)
	j.snap.Containers = append(j.snap.Containers, container(i, s.deadline))
	j.snap.Tasks = append(j.snap.Tasks, request(i, j.now, s.deadline))
	told = j.tells(i)
	for range 3 {
		j.now = j.now.Add(100 * time.Millisecond)
		toldLater = j.tells(i) || toldLater
	}
	j.snap.Tasks = j.snap.Tasks[:len(j.snap.Tasks)-1]
	j.look()
	return told, toldLater
}

func (j *judge) tells(i int) bool {
	for _, d := range j.look() {
		if d.Kind == decision.Admission && d.Container == name(i) && strings.Contains(d.Reason, "cannot be promised") {
			return true
		}
	}
	return false
}

// look hands the present snapshot to the core, and returns what it decides.
func (j *judge) look() (all []decision.Decision) {
	s := j.snap
	s.Sequence, s.Time = uint64(j.now.UnixNano()), j.now //nolint:gosec // after 1970
	s.Containers = append([]task.Container(nil), s.Containers...)
	s.Tasks = append([]task.Task(nil), s.Tasks...)
	j.core.Snapshot(j.now, &s, nil)
	j.core.Step(j.now, core.Around{GuardianUp: true, MayHold: true})
	for e := j.core.Effects(); !e.Empty(); e = j.core.Effects() {
		all = append(all, e.Decisions...)
	}
	return all
}
