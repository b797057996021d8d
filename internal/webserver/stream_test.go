package webserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
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
