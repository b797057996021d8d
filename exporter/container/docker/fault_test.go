package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/container/docker"
)

// engineOf serves the Docker API by hand, for faults that a real engine does
// not make on demand.
func engineOf(t *testing.T, routes map[string]http.HandlerFunc) *docker.Engine {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		for suffix, handle := range routes {
			if strings.HasSuffix(r.URL.Path, suffix) {
				handle(w, r)
				return
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	engine, err := docker.New(docker.Options{Host: "tcp://" + server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

func answer(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
}

func TestNoEngine(t *testing.T) {
	engine, err := docker.New(docker.Options{Host: "unix://" + filepath.Join(t.TempDir(), "none.sock")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.List(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	if _, err := engine.Watch(t.Context()); !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("Watch: %v", err)
	}
}

// A part of the list must not pass for the whole: it would end tasks that run. Nor may a container
// that the engine cannot describe hide the others.
func TestListIsWholeOrAnError(t *testing.T) {
	for status, whole := range map[int]bool{http.StatusInternalServerError: true, http.StatusServiceUnavailable: false, http.StatusForbidden: false} {
		engine := engineOf(t, map[string]http.HandlerFunc{
			"/containers/json": answer([]map[string]any{{"Id": "a"}, {"Id": "b", "Names": []string{"/two"}, "Labels": map[string]string{"l": "v"}}}),
			"/containers/a/json": answer(map[string]any{
				"Id": "a", "State": map[string]any{"Running": true, "Pid": 7},
			}),
			"/containers/b/json": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", status) },
		})
		list, err := engine.List(t.Context())
		if !whole {
			if err == nil {
				t.Errorf("%d: got %v and no error", status, list)
			}
			continue
		}
		if err != nil || len(list) != 2 || list[0].PID != 7 || !list[1].Partial || list[1].Name != "two" || list[1].Labels["l"] != "v" {
			t.Errorf("%d: got %+v, %v", status, list, err)
		}
	}
}

func TestListForgivesWhatVanished(t *testing.T) {
	engine := engineOf(t, map[string]http.HandlerFunc{
		"/containers/json": answer([]map[string]any{{"Id": "a"}, {"Id": "gone"}, {"Id": "podman"}, {"Id": "ended"}}),
		"/containers/a/json": answer(map[string]any{
			"Id": "a", "Name": "/one", "State": map[string]any{"Running": true, "Pid": 7},
		}),
		// What Podman 4.3 says of one that is removed while it describes it.
		"/containers/podman/json": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"cause":"no such container","message":"container podman does not exist in database: no such container","response":500}`)
		},
		"/containers/ended/json": answer(map[string]any{"Id": "ended", "State": map[string]any{"Running": false}}),
	})
	list, err := engine.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "one" {
		t.Errorf("got %+v, %v", list, err)
	}
}

// The engine restarts: the stream ends, and the reader is told.
func TestWatchEndsWhenTheStreamBreaks(t *testing.T) {
	engine := engineOf(t, map[string]http.HandlerFunc{
		"/info": answer(map[string]any{"SystemTime": time.Now().Format(time.RFC3339Nano)}),
		"/events": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("since") == "" {
				t.Error("asked without a start time: an event could be missed")
			}
			fmt.Fprintln(w, `{"Type":"container","Action":"die","Actor":{"ID":"a"},"timeNano":5}`)
			fmt.Fprint(w, `{"Type":"cont`)
		},
	})
	events, err := engine.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e, open := <-events; !open || e.Kind != container.Died || e.Time.UnixNano() != 5 {
		t.Errorf("got %+v, %v", e, open)
	}
	if e, open := <-events; open {
		t.Errorf("got %+v after the break", e)
	}
}

func TestListStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	engine := engineOf(t, map[string]http.HandlerFunc{
		"/containers/json": answer([]map[string]any{{"Id": "stuck"}}),
		"/containers/stuck/json": func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		},
	})
	if _, err := engine.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
