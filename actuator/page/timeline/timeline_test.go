package timeline_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/exporter/task"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return t0.Add(time.Duration(seconds * float64(time.Second)))
}

const gpu = "GPU-a"

func running(id string, start float64) task.Task {
	return task.Task{ID: id, Container: "c-" + id, ContainerID: "id-" + id, GPUs: []string{gpu}, State: task.Running,
		Start: task.Mark{Time: at(start)}, StateSince: at(start)}
}

func in(t task.Task, s task.State, since float64) task.Task {
	t.State, t.StateSince = s, at(since)
	return t
}

func ended(t task.Task, end float64) task.Task {
	t.State, t.StateSince, t.End = task.Ended, at(end), &task.Mark{Time: at(end)}
	return t
}

func snap(now float64, tasks, over []task.Task) *task.Snapshot {
	return &task.Snapshot{Time: at(now), Tasks: tasks, Ended: over}
}

func spans(e timeline.Entry) string {
	var s string
	for _, p := range e.Spans {
		to := "…"
		if !p.To.IsZero() {
			to = fmt.Sprint(p.To.Sub(t0).Seconds())
		}
		s += fmt.Sprintf("%s %v-%s, ", p.State, p.From.Sub(t0).Seconds(), to)
	}
	return s
}

func TestHistory(t *testing.T) {
	a := running("a", 1)
	still := in(a, task.Running, 6)
	still.HeldSeconds, still.PausedSeconds = 1, 2
	for name, c := range map[string]struct {
		snapshots []*task.Snapshot
		want      string
	}{
		"runs":               {[]*task.Snapshot{snap(2, []task.Task{a}, nil)}, "running 1-…, "},
		"held at once":       {[]*task.Snapshot{snap(2, []task.Task{in(a, task.Held, 1)}, nil)}, "held 1-…, "},
		"first seen paused":  {[]*task.Snapshot{snap(4, []task.Task{in(a, task.Paused, 3)}, nil)}, "running 1-3, paused 3-…, "},
		"held then paused":   {[]*task.Snapshot{snap(2, []task.Task{a}, nil), snap(3, []task.Task{in(a, task.Held, 2.5)}, nil), snap(4, []task.Task{in(a, task.Paused, 3.5)}, nil)}, "running 1-2.5, held 2.5-3.5, paused 3.5-…, "},
		"swapped":            {[]*task.Snapshot{snap(2, []task.Task{a}, nil), snap(3, []task.Task{in(a, task.Swapped, 2.5)}, nil)}, "running 1-2.5, swapped 2.5-…, "},
		"between snapshots":  {[]*task.Snapshot{snap(2, []task.Task{a}, nil), snap(7, []task.Task{still}, nil)}, "running 1-3, held 3-4, paused 4-6, running 6-…, "},
		"ended":              {[]*task.Snapshot{snap(2, []task.Task{in(a, task.Held, 2)}, nil), snap(7, nil, []task.Task{ended(a, 5)})}, "running 1-2, held 2-5, "},
		"ended before":       {[]*task.Snapshot{snap(7, nil, []task.Task{ended(a, 5)})}, "running 1-5, "},
		"ended in the past":  {[]*task.Snapshot{snap(3, []task.Task{in(a, task.Held, 2.5)}, nil), snap(7, nil, []task.Task{ended(a, 2)})}, "running 1-2, "},
		"vanished":           {[]*task.Snapshot{snap(2, []task.Task{a}, nil), snap(7, nil, nil)}, "running 1-7, "},
		"came back":          {[]*task.Snapshot{snap(2, []task.Task{a}, nil), snap(7, nil, nil), snap(8, []task.Task{a}, nil)}, "running 1-…, "},
		"says it twice":      {[]*task.Snapshot{snap(2, []task.Task{in(a, task.Held, 2)}, nil), snap(3, []task.Task{in(a, task.Held, 2)}, nil)}, "running 1-2, held 2-…, "},
		"a clock goes back":  {[]*task.Snapshot{snap(2, []task.Task{in(a, task.Held, 2)}, nil), snap(3, []task.Task{in(a, task.Running, 1)}, nil)}, "running 1-…, "},
		"a candidate is not": {[]*task.Snapshot{snap(2, []task.Task{in(a, task.Candidate, 1)}, nil)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := timeline.New(time.Minute)
			for _, s := range c.snapshots {
				h.Observe(s)
			}
			got := ""
			for _, e := range h.Since(t0) {
				got += spans(e)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestHistoryForgets(t *testing.T) {
	h := timeline.New(time.Minute)
	h.Observe(snap(2, []task.Task{running("a", 1)}, []task.Task{ended(running("b", 0), 1)}))
	if n := len(h.Since(t0)); n != 2 {
		t.Fatalf("%d tasks", n)
	}
	if got := h.Since(at(1.5)); len(got) != 1 || got[0].ID != "a" {
		t.Errorf("since 1.5: %v", got)
	}
	h.Observe(snap(62, []task.Task{running("a", 1)}, []task.Task{ended(running("b", 0), 1)}))
	if got := h.Since(t0); len(got) != 1 || got[0].ID != "a" {
		t.Errorf("an hour later: %v", got)
	}
	// However many there are, the memory is bounded, and the youngest stay.
	var many []task.Task
	for i := range 5000 {
		many = append(many, ended(running(fmt.Sprint(i), 2), 2+float64(i)/1000))
	}
	h.Observe(snap(62, []task.Task{running("a", 1)}, many))
	all := h.Since(t0)
	if len(all) < 1900 || len(all) > 2048 || !slices.ContainsFunc(all, func(e timeline.Entry) bool { return e.ID == "4999" }) || all[0].ID != "a" {
		t.Errorf("%d tasks are remembered, from %s", len(all), all[0].ID)
	}
}

// Whatever the stream says, the stays of a task follow each other without a gap,
// from its start on, and their number is bounded.
func TestSpansAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := timeline.New(time.Hour)
		a := running("a", 0)
		now := 0.0
		for range rapid.IntRange(1, 300).Draw(t, "snapshots") {
			now += rapid.Float64Range(0, 2).Draw(t, "later")
			if rapid.Bool().Draw(t, "change") {
				a.State = rapid.SampledFrom(task.UnfinishedStates).Draw(t, "state")
				a.StateSince = at(now - rapid.Float64Range(-1, 3).Draw(t, "since"))
				a.HeldSeconds += task.Seconds(rapid.Float64Range(-1, 1).Draw(t, "held"))
			}
			h.Observe(snap(now, []task.Task{a}, nil))
		}
		if rapid.Bool().Draw(t, "ends") {
			h.Observe(snap(now+1, nil, []task.Task{ended(a, rapid.Float64Range(0, now+1).Draw(t, "end"))}))
		}
		e := h.Since(t0)[0]
		if len(e.Spans) == 0 || len(e.Spans) > 128 || !e.Spans[0].From.Equal(e.Start.Time) {
			t.Fatalf("%s", spans(e))
		}
		for i, s := range e.Spans {
			last := i == len(e.Spans)-1
			if !last && (!s.To.Equal(e.Spans[i+1].From) || !s.To.After(s.From)) || last && e.End == nil && !s.To.IsZero() {
				t.Fatalf("stay %d of %s", i, spans(e))
			}
			if last && e.End != nil && !s.To.Equal(e.End.Time) {
				t.Fatalf("ended at %v: %s", e.End.Time.Sub(t0), spans(e))
			}
		}
	})
}

func drawEntry(t *rapid.T, i int) timeline.Entry {
	start := rapid.Float64Range(-400, 60).Draw(t, "start")
	a := running(fmt.Sprint(i%rapid.IntRange(1, 5).Draw(t, "containers")), start)
	a.ID = fmt.Sprint(i)
	if rapid.Bool().Draw(t, "deadline") {
		a.Deadline = at(start + rapid.Float64Range(0.01, 500).Draw(t, "relative"))
	}
	h := timeline.New(time.Hour)
	held := in(a, task.Held, start+rapid.Float64Range(0, 50).Draw(t, "held"))
	h.Observe(snap(start+60, []task.Task{held}, nil))
	if rapid.Bool().Draw(t, "ended") {
		h.Observe(snap(start+200, nil, []task.Task{ended(a, start+rapid.Float64Range(0, 100).Draw(t, "length"))}))
	}
	return h.Since(at(-10000))[0]
}

// Every bar, stay and mark lies in the picture; no two bars of a row overlap; the
// stays fill their bar; nothing is lost.
func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []timeline.Entry
		for i := range rapid.IntRange(0, 40).Draw(t, "tasks") {
			entries = append(entries, drawEntry(t, i))
		}
		w := timeline.NewWindow(at(0), time.Duration(rapid.IntRange(1, 900).Draw(t, "window"))*time.Second, entries)
		lanes := timeline.Lay(entries, gpu, w)
		inside := func(what string, r timeline.Range) {
			if r.X < 0 || r.W <= 0 || r.End() > 100.0001 {
				t.Fatalf("%s at %v, width %v", what, r.X, r.W)
			}
		}
		for _, l := range lanes {
			end := map[int]float64{}
			if l.Hidden == 0 && len(l.Bars) == 0 {
				t.Fatal("an empty lane")
			}
			for _, b := range l.Bars {
				inside("bar", b.Range)
				if b.Row < 0 || b.Row >= l.Rows || b.X < end[b.Row] {
					t.Fatalf("bar of %s in row %d of %d begins at %v and the one before ends at %v", b.Task.ID, b.Row, l.Rows, b.X, end[b.Row])
				}
				end[b.Row] = b.End()
				x := b.X
				for _, s := range b.Segments {
					inside("stay", s.Range)
					if s.X < x-0.0001 || s.End() > b.End()+0.0001 {
						t.Fatalf("stay %+v of bar %+v", s, b.Range)
					}
					x = s.End()
				}
				if len(b.Segments) == 0 || x < b.End()-0.31 {
					t.Fatalf("the stays of %+v end at %v", b.Range, x)
				}
				if (b.Deadline != nil) != (b.Task.HasDeadline() && len(b.Short) == 0) {
					t.Fatal("deadline")
				}
				if b.Deadline != nil && (b.Deadline.X < 0 || b.Deadline.X > 100 || b.Spare != nil && b.Late != nil) {
					t.Fatalf("deadline %+v, %+v, %+v", b.Deadline, b.Spare, b.Late)
				}
			}
		}
		for _, tick := range w.Ticks() {
			if tick.X < -0.0001 || tick.X > 100.0001 {
				t.Fatalf("tick at %v", tick.X)
			}
		}
		if n := len(w.Ticks()); n < 2 || n > 10 {
			t.Fatalf("%d ticks", n)
		}
	})
}

func TestLayoutOfOneTask(t *testing.T) {
	a := running("a", -50)
	a.Deadline = at(-20)
	late := ended(a, -10)
	h := timeline.New(time.Hour)
	h.Observe(snap(-30, []task.Task{in(a, task.Held, -40)}, nil))
	h.Observe(snap(0, nil, []task.Task{late}))
	w := timeline.NewWindow(at(0), 92*time.Second, nil) // 92 s of the past, 7.36 s ahead
	w.To = at(8)
	b := timeline.Lay(h.Since(at(-100)), gpu, w)[0].Bars[0]
	if b.X != 42 || b.W != 40 || b.Deadline.X != 72 || *b.Late != (timeline.Range{X: 72, W: 10}) || b.Spare != nil {
		t.Errorf("%+v", b)
	}
	want := []timeline.Segment{{Range: timeline.Range{X: 42, W: 10}, State: task.Running}, {Range: timeline.Range{X: 52, W: 30}, State: task.Held}}
	if !reflect.DeepEqual(b.Segments, want) {
		t.Errorf("%+v", b.Segments)
	}
	if lanes := timeline.Lay(h.Since(at(-100)), "GPU-b", w); len(lanes) != 0 {
		t.Errorf("on another GPU: %v", lanes)
	}
}
