package webserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/internal/webserver"
)

// silent waits: time itself is what is tested.
func silent(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// The server's limits for a request do not end a stream, whichever version of HTTP it
// is, and however long it is silent.
func TestStreamOutlivesTheRequest(t *testing.T) {
	const limit = 2 * time.Second // a busy machine greets and reads a request in less
	stream := func(t *testing.T, http2 bool) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := webserver.NewStream(w)
			for n := range 2 {
				silent(r.Context(), limit*5/4)
				if _, err := fmt.Fprintln(s, n); err != nil {
					t.Error(err)
				}
			}
		}))
		server.EnableHTTP2 = http2
		server.Config.ReadTimeout, server.Config.WriteTimeout = limit, limit
		server.StartTLS()
		defer server.Close()
		resp, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		n := 0
		for ; lines.Scan(); n++ {
		}
		if n != 2 || lines.Err() != nil || resp.ProtoMajor != map[bool]int{false: 1, true: 2}[http2] {
			t.Errorf("HTTP/%d: %d lines, %v", resp.ProtoMajor, n, lines.Err())
		}
		_ = resp.Body.Close()
	}
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream(t, http2)
		})
	}
}

// limited is an answer whose limits are recorded.
type limited struct {
	http.ResponseWriter
	limit  time.Time // of writes, now
	within []time.Time
}

func (l *limited) SetWriteDeadline(t time.Time) error { l.limit = t; return nil }

func (l *limited) Write(b []byte) (int, error) {
	l.within = append(l.within, l.limit)
	return len(b), nil
}

func (l *limited) Flush() {}

// A reader who does not read is given up after a while; one to whom nothing is sent is not.
func TestStreamLimitsEachWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limited{ResponseWriter: httptest.NewRecorder()}
		s := webserver.NewStream(l)
		if !l.limit.IsZero() {
			t.Errorf("a silent stream ends at %v", l.limit)
		}
		for range 2 {
			time.Sleep(time.Minute)
			before := time.Now()
			if _, err := s.Write([]byte("a")); err != nil {
				t.Fatal(err)
			}
			if in := l.within[len(l.within)-1].Sub(before); in <= 0 || in > time.Minute {
				t.Errorf("a write may take %v", in)
			}
			if !l.limit.IsZero() {
				t.Errorf("a silent stream ends at %v", l.limit)
			}
		}
	})
}
