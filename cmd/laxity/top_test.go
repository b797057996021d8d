package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// top on a terminal shows the most urgent of many, and says when it shows what is old.
func TestTopOnATerminal(t *testing.T) {
	s := task.Snapshot{Health: task.Health{DeviceUp: true, EngineUp: true}, GPUs: []task.GPU{{UUID: "GPU-a", MemoryTotal: 1}}}
	for i := range 60 {
		id := fmt.Sprintf("c%02d", i)
		s.Containers = append(s.Containers, task.Container{ID: id, Name: id})
		s.Tasks = append(s.Tasks, task.Task{ContainerID: id, State: task.Running, GPUs: []string{"GPU-a"}, Deadline: time.Now().Add(time.Duration(i) * time.Minute)})
	}
	var silent atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if silent.Load() {
				panic(http.ErrAbortHandler)
			}
			_ = json.NewEncoder(w).Encode(s)
			if r.URL.Query().Get("watch") == "" {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	s1 := terminal(t, 80, 24)
	c := &cli{out: s1.program, err: s1.program}
	source, err := c.source(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- top{source: source, acts: &standingSource{cli: c, url: "http://127.0.0.1:1"}, out: s1.program, keys: s1.program}.show(ctx, false)
	}()
	text, at := s1.await(0, "more below")
	if !strings.Contains(text, "GPU 0") || !strings.Contains(text, "c00") || !strings.Contains(text, "c15") || strings.Contains(text, "c30") {
		t.Errorf("it shows:\n%q", text)
	}
	silent.Store(true)
	_, at = s1.await(at, "the exporter does not answer")
	silent.Store(false)
	_, at = s1.await(at, "more below") // one line more has room
	s1.press("/c59\r")
	_, at = s1.await(at, "only c59")
	s1.press("q")
	defer stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s1.await(at, "\x1b[?1049l") // the screen of before is back
}

// Where top follows changes only, silence would pass for peace.
func TestTopReportsAnExporterThatDoesNotAnswer(t *testing.T) {
	var printed strings.Builder
	report := top{acts: &standingSource{cli: &cli{err: &printed}}}.reportTrouble()
	broken := errors.New("connection refused")
	for _, err := range []error{nil, broken, broken, nil, nil, broken} {
		report(err)
	}
	want := "the exporter does not answer; what you see is old: connection refused\n"
	if got := printed.String(); got != want+"the exporter answers again\n"+want {
		t.Errorf("printed:\n%s", got)
	}
}
