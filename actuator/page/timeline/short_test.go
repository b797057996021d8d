package timeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/exporter/task"
)

// request is a task of a server that took 50 ms and had 100; late ones took 150.
func request(i int, start float64, late bool) task.Task {
	r := running("server", start)
	r.ID = fmt.Sprint("r", i)
	r.Deadline = at(start + 0.1)
	if late {
		return ended(r, start+0.15)
	}
	return ended(r, start+0.05)
}

// The requests of a server are one line of bars, each of which stands for many and has the colour of
// the worst; a long task beside them keeps its own bar.
func TestRequestsAreOneLine(t *testing.T) {
	h := timeline.New(time.Hour)
	var all []task.Task
	for i := range 600 {
		all = append(all, request(i, -60+float64(i)/10, i == 300))
	}
	job := running("job", -50)
	job.ID = "job"
	h.Observe(snap(0, nil, append(all, ended(job, -20))))
	w := timeline.NewWindow(at(0), 5*time.Minute, nil)
	lanes := timeline.Lay(h.Since(at(-300)), gpu, w)
	if len(lanes) != 2 || len(lanes[0].Bars) != 1 || lanes[0].Bars[0].Short != nil {
		t.Fatalf("%d lanes, the first %+v", len(lanes), lanes[0])
	}
	server, n, late := lanes[1], 0, 0
	if server.Rows != 2 || server.Hidden != 0 || len(server.Bars) > 40 {
		t.Errorf("%d rows, %d bars, %d hidden", server.Rows, len(server.Bars), server.Hidden)
	}
	for _, b := range server.Bars {
		n += len(b.Short)
		if b.Row != 0 || b.Deadline != nil {
			t.Errorf("a bar of %d in row %d, deadline %v", len(b.Short), b.Row, b.Deadline)
		}
		if b.Task.Outcome() == task.Miss {
			late++
		}
	}
	if n != 600 || late != 1 {
		t.Errorf("%d requests are shown, %d bars are late", n, late)
	}
}

// Few short tasks are bars of their own.
func TestFewShortTasksAreNotMerged(t *testing.T) {
	h := timeline.New(time.Hour)
	h.Observe(snap(0, nil, []task.Task{request(1, -200, false), request(2, -100, false)}))
	bars := timeline.Lay(h.Since(at(-300)), gpu, timeline.NewWindow(at(0), 5*time.Minute, nil))[0].Bars
	if len(bars) != 2 || bars[0].Short != nil || bars[0].Deadline == nil {
		t.Errorf("%+v", bars)
	}
}

// Beyond the bound, what is forgotten is of the container that has the most.
func TestRequestsDoNotPushOutOthers(t *testing.T) {
	h := timeline.New(time.Hour)
	job := running("job", -400)
	job.ID = "job"
	all := []task.Task{ended(job, -390)}
	for i := range 3000 {
		all = append(all, request(i, -300+float64(i)/10, false))
	}
	h.Observe(snap(0, nil, all))
	kept := h.Since(at(-1000))
	if len(kept) < 1900 || len(kept) > 2048 || kept[0].Container != "c-job" {
		t.Errorf("%d tasks are kept, the first of %s", len(kept), kept[0].Container)
	}
}

// What each request of a server costs once the history is full.
func BenchmarkObserveFull(b *testing.B) {
	h := timeline.New(time.Hour)
	i := 0
	observe := func() {
		h.Observe(snap(float64(i)/10, nil, []task.Task{request(i, float64(i)/10-0.1, false)}))
		i++
	}
	for range 3000 {
		observe()
	}
	for b.Loop() {
		observe()
	}
}
