package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// terminal returns a terminal of this size, and what is shown on it, frame by frame.
func terminal(t *testing.T, width, height uint16) (*os.File, <-chan string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		needtest.Terminal.Skip(t, "no terminals here:", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close(); master.Close() })
	frames := make(chan string, 1000)
	go func() {
		var text string
		buffer := make([]byte, 1<<16)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			text += string(buffer[:n])
			for {
				frame, rest, whole := strings.Cut(text, "\x1b[J")
				if !whole {
					break
				}
				frames <- frame[strings.LastIndex(frame, "\x1b[H")+3:]
				text = rest
			}
		}
	}()
	return slave, frames
}

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
	screen, frames := terminal(t, 80, 24)
	c := &cli{out: screen, err: screen}
	source, err := c.source(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- top{source, &standingSource{cli: c, url: "http://127.0.0.1:1"}, screen, false, false}.show(ctx, false)
	}()
	next := func(text string) string {
		t.Helper()
		for end := time.After(10 * time.Second); ; {
			select {
			case frame := <-frames:
				if strings.Contains(frame, text) {
					return frame
				}
			case <-end:
				t.Fatalf("%q is not shown", text)
			}
		}
	}
	frame := next("c00")
	if n := strings.Count(frame, "\n"); n > 23 {
		t.Errorf("%d lines on a terminal of 24: the first are gone", n+1)
	}
	if !strings.Contains(frame, "GPU 0") || !strings.Contains(frame, "c15") || !strings.Contains(frame, "lines more") {
		t.Errorf("frame:\n%s", frame)
	}
	silent.Store(true)
	next("the exporter does not answer; all of this is 4s old")
	silent.Store(false)
	for strings.Contains(next("c00"), "does not answer") {
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
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
