package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// claims is a core on a node with one GPU, and what it says about deadlines.
type claims struct {
	*testing.T
	core   *core.Core
	now    time.Time
	n      int
	snap   task.Snapshot
	said   []string
	counts []string
}

func newClaims(t *testing.T) *claims {
	c := &claims{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c.core = core.New(core.Options{
		Node: "n1", Config: config.Config{}.WithDefaults(), Leases: lease.New(), History: estimate.New(), Divides: true,
		MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second, FetchEvery: time.Hour,
	}, c.now)
	c.snap = task.Snapshot{Run: "r", Health: task.Health{DeviceUp: true, EngineUp: true}, GPUs: []task.GPU{{UUID: "GPU-0", MemoryTotal: 100, Utilization: 1}}}
	return c
}

// after lets time pass, and the core look.
func (c *claims) after(d time.Duration) {
	c.now = c.now.Add(d)
	s := c.snap
	s.Sequence, s.Time = uint64(c.now.UnixNano()), c.now
	s.Containers, s.Tasks, s.Ended = slices.Clone(s.Containers), slices.Clone(s.Tasks), slices.Clone(s.Ended)
	c.core.Snapshot(c.now, &s, nil)
	c.core.Step(c.now, core.Around{GuardianUp: true, MayHold: true})
	for e := c.core.Effects(); !e.Empty(); e = c.core.Effects() {
		for _, d := range e.Decisions {
			if d.Kind == "admission" {
				c.said = append(c.said, fmt.Sprintf("%s %s: %s", d.Result, d.Container, d.Reason))
			}
		}
		for _, n := range e.Counts {
			if n.What == core.Judged {
				c.counts = append(c.counts, n.Labels...)
			}
		}
	}
}

// runs starts a container whose image is its name without digits; a deadline of 0 is none.
func (c *claims) runs(name string, spec task.Spec) {
	spec.Managed = true
	c.snap.Containers = append(c.snap.Containers, task.Container{ID: "id-" + name, Name: name, Image: strings.TrimRight(name, "0123456789"), Spec: spec,
		Processes: []task.Process{{PID: 100 + len(c.snap.Containers), GPUs: []string{"GPU-0"}}}})
	c.begins(name)
}

func (c *claims) begins(name string) {
	i := slices.IndexFunc(c.snap.Containers, func(b task.Container) bool { return b.Name == name })
	c.n++
	t := task.Task{ID: fmt.Sprint(name, c.n), ContainerID: "id-" + name, Container: name, PID: 100 + i, GPUs: []string{"GPU-0"}, State: task.Running, Start: task.Mark{Time: c.now}}
	if d := c.snap.Containers[i].Spec.Deadline; d > 0 {
		t.Deadline = c.now.Add(d.Duration())
	}
	c.snap.Tasks = append(c.snap.Tasks, t)
}

// ends finishes its task; gone: the container goes too.
func (c *claims) ends(name string, gone bool) {
	c.snap.Tasks = slices.DeleteFunc(c.snap.Tasks, func(t task.Task) bool {
		if t.Container == name {
			t.State, t.End = task.Ended, &task.Mark{Time: c.now}
			c.snap.Ended = append([]task.Task{t}, c.snap.Ended...)
		}
		return t.Container == name
	})
	if c.after(0); gone {
		c.snap.Containers = slices.DeleteFunc(c.snap.Containers, func(b task.Container) bool { return b.Name == name })
	}
}

// learns lets three tasks of an image last for so long.
func (c *claims) learns(image string, d time.Duration) {
	for i := range 3 {
		name := fmt.Sprint(image, i)
		c.runs(name, task.Spec{})
		c.after(0)
		c.after(d)
		c.ends(name, true)
	}
}

func (c *claims) state(name string) state.Container {
	s := c.core.State()
	return s.Containers[slices.IndexFunc(s.Containers, func(b state.Container) bool { return b.Name == name })]
}

func (c *claims) says(want ...string) {
	c.Helper()
	if !slices.Equal(c.said, want) {
		c.Fatalf("says %q\nwant %q", c.said, want)
	}
	c.said = nil
}

func due(d time.Duration) task.Spec { return task.Spec{Deadline: task.SecondsOf(d)} }

func TestUnmetDeadlineIsToldAtOnce(t *testing.T) {
	c := newClaims(t)
	c.learns("train", 3*time.Second)
	c.runs("train7", due(4*time.Second))
	c.after(time.Millisecond)
	c.says()
	c.runs("train8", due(5*time.Second))
	c.after(time.Millisecond) // the first snapshot that has it
	c.says("unmet train8: its deadline cannot be promised: it needs 3s of GPU time before its deadline in 5s; 1.75s is free beside train7; it runs all the same")
	c.after(time.Second)
	c.says() // once
	if s := c.state("train8"); s.DeadlineUnmet == "" || s.DeadlineUnknown {
		t.Errorf("%+v", s)
	}
	if s := c.state("train7"); s.DeadlineUnmet != "" {
		t.Errorf("who was there before is told: %+v", s)
	}
	c.runs("train9", due(20*time.Second))
	c.runs("other", due(time.Second))
	c.runs("batch", task.Spec{Deadline: 1, Class: task.ClassBatch})
	c.after(time.Millisecond)
	c.says()
	if s := c.state("other"); !s.DeadlineUnknown || s.DeadlineUnmet != "" {
		t.Errorf("without history: %+v", s)
	}
	if want := []string{"met", "unmet", "met", "unknown"}; !slices.Equal(sorted(c.counts), sorted(want)) {
		t.Errorf("counted %v, want %v", c.counts, want)
	}
	c.ends("train8", true)
	c.runs("train8", due(time.Minute))
	c.after(0)
	if s := c.state("train8"); s.DeadlineUnmet != "" {
		t.Errorf("after its end: %+v", s)
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

func TestChangedDeadlineIsJudgedAnew(t *testing.T) {
	c := newClaims(t)
	c.learns("train", 3*time.Second)
	c.runs("train7", due(time.Minute))
	c.after(time.Millisecond)
	c.snap.Containers[0].Spec.Deadline, c.snap.Tasks[0].Deadline = 2, c.snap.Tasks[0].Start.Time.Add(2*time.Second)
	c.after(time.Millisecond)
	c.says("unmet train7: its deadline cannot be promised: it takes 3s with the GPU to itself, and is due in 2s; it runs all the same")
}

// It is no start of a task that nobody has seen before, so it is judged however late it is changed.
func TestDeadlineChangedLateIsJudged(t *testing.T) {
	c := newClaims(t)
	c.learns("train", 100*time.Second)
	c.runs("train7", due(time.Minute))
	c.after(time.Millisecond)
	change := func(d time.Duration) {
		c.snap.Containers[0].Spec.Deadline, c.snap.Tasks[0].Deadline = task.SecondsOf(d), c.snap.Tasks[0].Start.Time.Add(d)
		c.after(time.Millisecond)
	}
	for range 8 {
		c.after(5 * time.Second)
	}
	change(70 * time.Second)
	if s := c.state("train7"); s.DeadlineUnmet == "" {
		t.Errorf("it needs a minute more, and its deadline is in half a minute: %+v", s)
	}
	change(130 * time.Second)
	if s := c.state("train7"); s.DeadlineUnmet != "" {
		t.Errorf("its deadline is far away now: %+v", s)
	}
	change(30 * time.Second)
	if s := c.state("train7"); s.DeadlineUnmet != "" || s.DeadlineUnknown {
		t.Errorf("its deadline is over, and nothing is to be promised: %+v", s)
	}
}

// Nobody says of runs beside others that they had the GPU to themselves.
func TestReasonSaysWhichRunsWereSeen(t *testing.T) {
	c := newClaims(t)
	c.runs("other", task.Spec{})
	c.learns("train", 3*time.Second)
	c.runs("train7", due(2*time.Second))
	c.after(time.Millisecond)
	const by = "it takes 3s by earlier runs, not all with the GPU to itself, and is due in 2s"
	c.says("unmet train7: its deadline cannot be promised: " + by + "; it runs all the same")
	q := admission.Question{Image: "train", Deadline: 2 * time.Second}
	if got, err := c.core.AskAdmission(c.now, q); err != nil || got.Reason != by {
		t.Errorf("%+v, %v", got, err)
	}
	q.Estimate = 3 * time.Second // who gives it says how long a run is by itself
	if got, err := c.core.AskAdmission(c.now, q); err != nil || got.Reason != "it takes 3s with the GPU to itself, and is due in 2s" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestServerIsJudgedOnceItsRequestsAreKnown(t *testing.T) {
	c := newClaims(t)
	c.runs("web", task.Spec{Deadline: 0.02, Release: task.ReleaseBusy, Class: task.ClassDeadline})
	request := func(name string, d time.Duration) {
		c.after(0)
		c.after(d)
		c.ends(name, false)
		c.after(100*time.Millisecond - d)
		c.begins(name)
	}
	for range 5 {
		request("web", 10*time.Millisecond)
	}
	c.says()
	if want := []string{"unknown", "met"}; !slices.Equal(c.counts, want) {
		t.Errorf("counted %v, want %v", c.counts, want)
	}
	// A second one of the same image: its requests wait for one of the first one's.
	c.ends("web", false)
	c.runs("web2", task.Spec{Deadline: 0.02, Release: task.ReleaseBusy, Class: task.ClassDeadline})
	c.after(time.Millisecond)
	c.says("unmet web2: its deadline cannot be promised: it needs 10ms of GPU time for each request, due in 20ms; nothing is free when all come at once beside web; it runs all the same")
}

func TestSharesThatAddUpToTooMuch(t *testing.T) {
	c := newClaims(t)
	c.runs("a", task.Spec{Share: 0.6})
	c.after(0)
	c.says()
	c.runs("b", task.Spec{Share: 0.5})
	c.after(0)
	why := "shares and the batch floor add up to 115 % of the GPU's time: each is cut to 87 % of it"
	c.says("unmet : " + why)
	if got := c.core.State().GPUs[0].Unkept; got != why {
		t.Errorf("%q", got)
	}
	c.ends("b", true)
	c.after(0)
	if got := c.core.State().GPUs[0].Unkept; got != "" {
		t.Errorf("%q", got)
	}
}

func TestQuestion(t *testing.T) {
	c := newClaims(t)
	if _, err := c.core.AskAdmission(c.now, admission.Question{Deadline: 1 * time.Second}); err == nil || !strings.Contains(err.Error(), "no snapshot") {
		t.Errorf("without facts: %v", err)
	}
	c.learns("train", 3*time.Second)
	c.runs("train7", due(4*time.Second))
	c.runs("a", task.Spec{Share: 0.6})
	c.after(time.Millisecond)
	for _, tc := range []struct {
		about  string
		q      admission.Question
		result admission.Result
		says   string
	}{
		{"no deadline", admission.Question{Image: "x"}, admission.Met, ""},
		{"late enough", admission.Question{Image: "train", Deadline: 60 * time.Second}, admission.Met, ""},
		{"too early", admission.Question{Image: "train", Deadline: 5 * time.Second}, admission.Unmet, "it needs 3s of GPU time before its deadline in 5s; nothing is free beside train7"},
		{"by an estimate", admission.Question{Image: "x", Deadline: 60 * time.Second, Estimate: 61 * time.Second}, admission.Unmet, "it takes 1m1s with the GPU to itself, and is due in 1m0s"},
		{"nothing is known", admission.Question{Image: "x", Deadline: 5 * time.Second}, admission.Unknown, "no task of image x has ended here, so nobody knows what it needs"},
		{"of a server", admission.Question{Image: "train", Deadline: 5 * time.Second, Server: true}, admission.Unknown, "too few requests of image train"},
		{"a share", admission.Question{Image: "x", Share: 0.35}, admission.Met, ""},
		{"too large a share", admission.Question{Image: "x", Share: 0.5}, admission.Unmet, "with it shares and the batch floor add up to 115 %"},
	} {
		tc.q.GPU = "GPU-0"
		got, err := c.core.AskAdmission(c.now, tc.q)
		if err != nil || got.Result != tc.result || !strings.HasPrefix(got.Reason, tc.says) || (tc.says == "") != (got.Reason == "") || got.GPU != "GPU-0" || got.Node != "n1" {
			t.Errorf("%s: %+v, %v", tc.about, got, err)
		}
		if tc.about == "too early" && (got.EarliestDeadline < 17 || got.EarliestDeadline > 18) { // (3 s + 3 s) ÷ (100 − 60 − 5) %
			t.Errorf("the earliest is %v s", got.EarliestDeadline)
		}
	}
	if got, err := c.core.AskAdmission(c.now, admission.Question{GPU: "0"}); err != nil || got.GPU != "GPU-0" {
		t.Errorf("by its index: %+v, %v", got, err)
	}
	if _, err := c.core.AskAdmission(c.now, admission.Question{GPU: "GPU-9"}); err == nil {
		t.Error("a GPU that is not there was found")
	}
}

// What was promised to a container that has just been started is not promised to the next one.
func TestQuestionCountsWhoHasJustStarted(t *testing.T) {
	c := newClaims(t)
	c.learns("train", 3*time.Second)
	ask := func(q admission.Question) string {
		t.Helper()
		a, err := c.core.AskAdmission(c.now, q)
		if err != nil {
			t.Fatal(err)
		}
		return string(a.Result) + a.Reason
	}
	due4, share := admission.Question{Image: "train", Deadline: 4 * time.Second}, admission.Question{Image: "x", Share: 0.5}
	starts := func(name string, spec task.Spec, sees ...string) {
		spec.Managed = true
		c.snap.Containers = append(c.snap.Containers, task.Container{ID: "id-" + name, Name: name, Image: strings.TrimRight(name, "0123456789"),
			Spec: spec, PID: 7, Started: c.now, VisibleGPUs: sees})
		c.after(time.Millisecond)
	}
	c.after(time.Millisecond)
	if a, b := ask(due4), ask(share); a != "met" || b != "met" {
		t.Errorf("on an idle GPU: %s, %s", a, b)
	}
	starts("train6", due(4*time.Second), "GPU-0", "GPU-1") // nobody knows where
	starts("b", task.Spec{Share: 0.6}, "GPU-1")            // elsewhere
	if a, b := ask(due4), ask(share); a != "met" || b != "met" {
		t.Errorf("with others elsewhere: %s, %s", a, b)
	}
	starts("train7", due(4*time.Second), "GPU-0")
	if a := ask(due4); !strings.HasPrefix(a, "unmet") || !strings.Contains(a, "train7") {
		t.Errorf("beside train7, which has just started: %s", a)
	}
	starts("c", task.Spec{Share: 0.6}, "GPU-0")
	if a := ask(share); !strings.HasPrefix(a, "unmetwith it shares") {
		t.Errorf("beside c, which has just started: %s", a)
	}
	c.after(2 * time.Minute)
	if a, b := ask(due4), ask(share); a != "met" || b != "met" {
		t.Errorf("they never came: %s, %s", a, b)
	}
	long := due4
	long.Deadline = 103 * time.Second
	c.snap.Containers = nil
	starts("train9", due(101*time.Second), "GPU-0")
	if a := ask(long); a != "met" {
		t.Errorf("beside a short one: %s", a)
	}
	c.snap.Containers = nil
	for range 3 {
		c.runs("train1", task.Spec{})
		c.snap.Containers[0].CommandID = "long"
		c.after(0)
		c.after(100 * time.Second)
		c.ends("train1", true)
	}
	c.learns("train", 3*time.Second) // its command is the latest one
	starts("train9", due(101*time.Second), "GPU-0")
	c.snap.Containers[0].CommandID = "long"
	c.after(time.Millisecond)
	if a := ask(long); !strings.HasPrefix(a, "unmet") {
		t.Errorf("beside one whose command takes long: %s", a)
	}
}
