package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/exporter/task"
)

func TestHTTPSnapshot(t *testing.T) {
	var code atomic.Int32
	code.Store(200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/tasks" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(int(code.Load()))
		if code.Load() == 429 {
			_, _ = w.Write([]byte(`{"error":"too many requests a second","hint":"ask less often"}`))
			return
		}
		_ = json.NewEncoder(w).Encode(task.Snapshot{Sequence: 7, GPUs: []task.GPU{{UUID: "g", Utilization: task.Ratio(0.5)}}})
	}))
	defer server.Close()
	h, err := source.NewHTTP(server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(context.Background())
	if err != nil || s.Sequence != 7 || s.GPUs[0].Utilization != 0.5 {
		t.Errorf("%+v %v", s, err)
	}
	code.Store(404)
	if _, err := h.Snapshot(context.Background()); err == nil || !strings.Contains(err.Error(), "is it a laxity-exporter") {
		t.Errorf("error %v", err)
	}
	code.Store(401)
	if _, err := h.Snapshot(context.Background()); err == nil || !strings.Contains(err.Error(), "exporter answers 401 Unauthorized to "+server.URL) {
		t.Errorf("error %v", err)
	}
	code.Store(429)
	if _, err := h.Snapshot(context.Background()); err == nil || !strings.Contains(err.Error(), "too many requests a second; ask less often") {
		t.Errorf("error %v", err)
	}
	server.Close()
	if _, err := h.Snapshot(context.Background()); err == nil || !strings.Contains(err.Error(), "running") {
		t.Errorf("error %v", err)
	}
}

func TestHTTPWatchConnectsAgain(t *testing.T) {
	var connections atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := connections.Add(1)
		if n == 2 {
			_, _ = fmt.Fprintln(w, "this is no snapshot")
			return
		}
		_ = json.NewEncoder(w).Encode(task.Snapshot{Sequence: n}) // and the stream ends
	}))
	defer server.Close()
	h, err := source.NewHTTP(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	var down, up atomic.Int32
	h.Trouble = func(err error) {
		if err != nil {
			down.Add(1)
		} else {
			up.Add(1)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ch, err := h.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for s := range ch {
		if s.Sequence >= 4 {
			break
		}
	}
	if down.Load() < 3 || up.Load() < 3 {
		t.Errorf("told of %d breaks, %d returns", down.Load(), up.Load())
	}
	cancel()
	for range ch { // until it is closed
	}
}

func TestHTTPAddress(t *testing.T) {
	for _, base := range []string{"", "nowhere", "ftp://x", "http://", ":9870"} {
		if _, err := source.NewHTTP(base, nil); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:9870") {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestLatestReplaces(t *testing.T) {
	ch := make(chan *task.Snapshot, 1)
	for i := range uint64(3) {
		source.Latest(ch, &task.Snapshot{Sequence: i})
	}
	if s := <-ch; s.Sequence != 2 {
		t.Errorf("got %d", s.Sequence)
	}
}
