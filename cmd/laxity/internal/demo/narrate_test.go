package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

func TestNarrate(t *testing.T) {
	t0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	a := task.Task{ID: "a", Container: "a", State: task.Running, Deadline: at(5),
		Start: task.Mark{Time: t0, Source: task.SourceUprobe, ErrorBound: 0.0002}}
	b := task.Task{ID: "b", Container: "b", State: task.Running, Start: task.Mark{Time: at(1), Source: task.SourceDevice, ErrorBound: 0.02}}
	stranger := task.Task{ID: "s", Container: "stranger", State: task.Running, Start: task.Mark{Time: t0}}
	paused := func(x task.Task, when float64) task.Task { x.State, x.StateSince = task.Paused, at(when); return x }
	end := func(x task.Task, when float64) task.Task {
		x.State, x.End = task.Ended, &task.Mark{Time: at(when)}
		return x
	}

	snapshots := []*task.Snapshot{
		{Tasks: []task.Task{a, stranger}},
		{Tasks: []task.Task{a, paused(b, 1.5), stranger}}, // b began and was paused in between
		{Tasks: []task.Task{a, paused(b, 1.5)}},
		{Tasks: []task.Task{func() task.Task { x := b; x.StateSince = at(4); return x }()}, Ended: []task.Task{end(a, 4)}},
		{Ended: []task.Task{end(b, 7), end(a, 4)}},
	}
	var got []string
	var prev *task.Snapshot
	for _, s := range snapshots {
		for _, h := range narrate(prev, s, func(n string) bool { return n != "stranger" }) {
			got = append(got, strings.Join([]string{h.at.Format("05.0"), h.container, h.what}, " "))
		}
		prev = s
	}
	want := []string{
		"00.0 a task started (seen by uprobe, at most 0.2 ms late), deadline in 5.0s",
		"01.0 b task started (seen by device, at most 20.0 ms late)",
		"01.5 b paused",
		"04.0 b runs again",
		"04.0 a task ended after 4.00s, float +1.00s: hit",
		"07.0 b task ended after 6.00s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
