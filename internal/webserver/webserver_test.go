package webserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/webserver"
)

// start serves h and returns its address.
func start(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := webserver.New(h, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return l.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a request over the connection and reads the answer. The limit is for a test that hangs only.
func ask(c net.Conn) (int, error) {
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// Whoever opens connections and leaves them keeps nobody out: the oldest of them
// makes room.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	address := start(t, hello)
	used := dial(t, address) // idle after its first request
	if code, err := ask(used); code != http.StatusOK {
		t.Fatal(code, err)
	}
	var silent []net.Conn
	for range webserver.MaxConns {
		silent = append(silent, dial(t, address))
	}
	if code, err := ask(dial(t, address)); code != http.StatusOK {
		t.Fatalf("a new client beside %d idle ones: %d %v", len(silent), code, err)
	}
	// The server may have seen the first silent one before it was through with used's request. It closes
	// a connection on a goroutine of its own, so that may be later than the new client's answer.
	closed := make(chan error, 2)
	for _, c := range []net.Conn{used, silent[0]} {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		go func() {
			_, err := c.Read(make([]byte, 1))
			closed <- err
		}()
	}
	if err := <-closed; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connections that were idle for the longest are still there: %v", err)
	}
	if code, err := ask(silent[len(silent)-1]); code != http.StatusOK {
		t.Errorf("the youngest idle connection was closed: %d %v", code, err)
	}
}

// A connection at work is not closed for a new one.
func TestConnectionsAtWorkStay(t *testing.T) {
	begun, end := make(chan struct{}, webserver.MaxConns), make(chan struct{})
	address := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-end }))
	codes := make(chan int, webserver.MaxConns)
	for range webserver.MaxConns {
		c := dial(t, address)
		go func() { code, _ := ask(c); codes <- code }()
		<-begun
	}
	if _, err := ask(dial(t, address)); err == nil {
		t.Error("there is room for more than the bound")
	}
	close(end)
	for range webserver.MaxConns {
		if code := <-codes; code != http.StatusOK {
			t.Fatalf("a connection at work ended with %d", code)
		}
	}
}

func TestEveryWaitHasAnEnd(t *testing.T) {
	s := webserver.New(hello, slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("%+v", s)
	}
}
