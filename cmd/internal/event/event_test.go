package event_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/cmd/internal/event"
	"github.com/laxity/laxity/exporter/task"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

func begun(id string, start, due float64) task.Task {
	x := task.Task{ID: id, Container: id, ContainerID: id, State: task.Running, Start: task.Mark{Time: at(start)}, StateSince: at(start)}
	if due > 0 {
		x.Deadline = at(due)
	}
	return x
}

func in(x task.Task, s task.State, since float64) task.Task {
	x.State, x.StateSince = s, at(since)
	return x
}

func end(x task.Task, when float64) task.Task {
	x.State, x.End = task.Ended, &task.Mark{Time: at(when)}
	return x
}

// told is what a Teller says of these snapshots, a second apart.
func told(t *event.Teller, snapshots ...*task.Snapshot) string {
	var lines []string
	for i, s := range snapshots {
		for _, e := range t.See(s, at(float64(i))) {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s", e.Time.Format("05.0"), e.Kind, e.Container, e.Text))
		}
	}
	return strings.Join(lines, "\n")
}

func TestTellerTellsTheLifeOfATask(t *testing.T) {
	a, b, c := begun("a", 0, 5), begun("b", 1, 0), begun("c", 1, 2)
	late := end(c, 3.25)
	late.HeldSeconds = 1.5
	got := told(&event.Teller{Why: func(id string) string { return "a comes before " + id }},
		&task.Snapshot{Tasks: []task.Task{a}},
		&task.Snapshot{Tasks: []task.Task{a, in(b, task.Paused, 1.5), c}}, // b began and was paused in between
		&task.Snapshot{Tasks: []task.Task{a, in(b, task.Paused, 1.5), in(c, task.Held, 2)}},
		&task.Snapshot{Tasks: []task.Task{in(b, task.Running, 3), in(c, task.Running, 3)}, Ended: []task.Task{end(a, 3)}},
		&task.Snapshot{Tasks: []task.Task{in(b, task.Paused, 3.5)}, Ended: []task.Task{late, end(a, 3)}}, // held again: not told again
		&task.Snapshot{Tasks: []task.Task{in(b, task.Running, 4)}, Ended: []task.Task{late, end(a, 3)}},
		&task.Snapshot{Ended: []task.Task{end(b, 7), late, end(a, 3)}},
	)
	want := `00.0 began a: began a task, due in 5s
01.0 began b: began a task without a deadline
01.0 began c: began a task, due in 1s
01.5 held b: is paused: a comes before b
02.0 held c: is held: a comes before c
03.0 resumed b: computes again after 1.5s
03.0 resumed c: computes again after 1s
03.0 hit a: ended in time after 3s, with 2s to spare
03.2 missed c: missed its deadline by 1.25s; it took 2.25s (1.5s of it off the GPU)
07.0 ended b: ended after 6s`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// What ended before somebody looked is no news; a task that lasted for less than the time
// between two snapshots is.
func TestTellerMissesNoShortTask(t *testing.T) {
	old, short := end(begun("old", 0, 0), 0.5), end(begun("short", 1, 3), 1.25)
	got := told(&event.Teller{}, &task.Snapshot{Ended: []task.Task{old}}, &task.Snapshot{Ended: []task.Task{short, old}}, &task.Snapshot{Ended: []task.Task{short, old}})
	if want := "01.0 began short: began a task, due in 2s\n01.2 hit short: ended in time after 250ms, with 1.75s to spare"; got != want {
		t.Errorf("got:\n%s", got)
	}
}

// Who asks for the past gets it, once.
func TestPast(t *testing.T) {
	old, now := end(begun("old", 0, 1), 0.5), begun("now", 0.25, 9)
	s := &task.Snapshot{Tasks: []task.Task{now}, Ended: []task.Task{old}}
	var teller event.Teller
	var got []string
	for _, e := range append(teller.Past(s, nil, at(1)), teller.See(s, at(2))...) {
		got = append(got, string(e.Kind)+" "+e.Container)
	}
	if want := "began old, began now, hit old"; strings.Join(got, ", ") != want {
		t.Errorf("got %s", strings.Join(got, ", "))
	}
}

// Of the past the decisions know the pauses, the snapshot what a running task waited, and a
// server's requests are one line.
func TestPastTellsPausesAndCountsRequests(t *testing.T) {
	paused := end(begun("paused", 1, 9), 6)
	again := in(begun("again", 2, 0), task.Running, 5)
	again.HeldSeconds = 1.5
	s := &task.Snapshot{Containers: []task.Container{{ID: "web", Name: "web", Spec: task.Spec{Release: task.ReleaseBusy}}}, Tasks: []task.Task{again}, Ended: []task.Task{paused}}
	for i := range 5 {
		x := end(begun(fmt.Sprint("r", i), float64(i), float64(i)+0.1*float64(i%2+1)), float64(i)+0.15)
		x.Container, x.ContainerID = "web", "web"
		s.Ended = append(s.Ended, x)
	}
	decide := func(when float64, kind decision.Kind, result decision.Result, id string) decision.Decision {
		return decision.Decision{Time: at(when), Kind: kind, Result: result, ContainerID: id, Reason: "web comes first"}
	}
	decided := []decision.Decision{
		decide(0.5, decision.Pause, decision.Done, "paused"), // of the task before
		decide(1.5, decision.Pause, decision.Failed, "paused"),
		decide(2, decision.Pause, decision.Done, "paused"),
		decide(3.5, decision.Unpause, decision.Done, "paused"),
		decide(4, decision.Pause, decision.Done, "paused"), // the first one is told
		decide(7, decision.Unpause, decision.Done, "paused"),
	}
	var teller event.Teller
	var lines []string
	for _, e := range teller.Past(s, decided, at(8)) {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", e.Time.Format("05.0"), e.Kind, e.Container, e.Text))
	}
	want := `01.0 began paused: began a task, due in 8s
02.0 held paused: is paused: web comes first
02.0 began again: began a task without a deadline
03.5 resumed paused: computes again after 1.5s
04.1 requests web: 5 requests ended in 4.15s: 2 in time, 3 missed
05.0 resumed again: computes again after 1.5s off the GPU
06.0 hit paused: ended in time after 5s, with 3s to spare`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	// Its next hold is not its first.
	s.Tasks = []task.Task{in(again, task.Held, 9)}
	if e := teller.See(s, at(9)); len(e) != 0 {
		t.Errorf("%+v", e)
	}
}

// A server's requests are counted: a thousand a second are one line in ten seconds.
func TestTellerCountsRequests(t *testing.T) {
	server := []task.Container{{ID: "web", Name: "web", Spec: task.Spec{Release: task.ReleaseBusy}}}
	var teller event.Teller
	var snapshots []*task.Snapshot
	n := 0
	for i := range 12 {
		s := &task.Snapshot{Containers: server}
		for range 3 {
			n++
			x := begun(fmt.Sprint("r", n), float64(i), float64(i)+0.1*float64(n%2+1))
			x.Container, x.ContainerID = "web", "web"
			s.Ended = append([]task.Task{end(x, float64(i)+0.15)}, s.Ended...)
		}
		if i > 0 {
			s.Ended = append(s.Ended, snapshots[i-1].Ended[:3]...)
		}
		snapshots = append(snapshots, s)
	}
	if got, want := told(&teller, snapshots...), "10.0 requests web: 30 requests ended in the last 10s: 15 in time, 15 missed"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	// The next snapshot has nothing of the last one: some may be lost.
	x := begun("r999", 14, 15)
	x.Container, x.ContainerID = "web", "web"
	teller.See(&task.Snapshot{Containers: server, Ended: []task.Task{end(x, 14.5)}}, at(15))
	if e := teller.Count(at(16), 0); len(e) != 1 || !strings.HasPrefix(e[0].Text, "at least 4 requests") {
		t.Errorf("%+v", e)
	}
	// A server that is gone and told is forgotten.
	for i := range 3 {
		teller.See(&task.Snapshot{}, at(float64(20+i)))
	}
	if e := teller.Count(at(60), 0); len(e) != 0 {
		t.Errorf("%+v", e)
	}
}

func TestDecided(t *testing.T) {
	for _, tt := range []struct {
		d    decision.Decision
		want string
	}{
		{decision.Decision{Kind: decision.Request, Result: decision.Done, By: "ann", Container: "web", Reason: "deadline 5s, was 9s"}, "asked web: ann asked: deadline 5s, was 9s"},
		{decision.Decision{Kind: decision.Memory, Result: decision.Denied, Container: "web", Reason: "beyond its limit"}, "memory web: beyond its limit"},
		{decision.Decision{Kind: decision.Memory, Result: decision.Granted, Container: "web"}, ""},
		{decision.Decision{Kind: decision.Pause, Result: decision.Done, Container: "web"}, ""}, // the snapshot tells
		{decision.Decision{Kind: decision.Pause, Result: decision.Failed, Container: "web", Reason: "red comes first", Error: "no engine"}, "trouble web: pause failed: red comes first: no engine"},
		{decision.Decision{Kind: decision.SwapOut, Result: decision.DryRun, Container: "web", Reason: "room"}, "memory web: swapped out: room (dry run: nothing was done)"},
		{decision.Decision{Kind: decision.Service, Result: decision.Done, Reason: "hands off"}, "service : hands off"},
	} {
		got := ""
		if e, ok := event.Decided(tt.d); ok {
			got = fmt.Sprintf("%s %s: %s", e.Kind, e.Container, e.Text)
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.d, got, tt.want)
		}
	}
}
