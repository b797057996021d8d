// Package webserver makes the HTTP server and router of every program. Each thing at which a client
// can be slow has a timeout. The number of connections is bounded, without locking anybody out.
package webserver

import (
	"container/list"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	answerTimeout = time.Minute
	idleTimeout   = 2 * time.Minute // longer than a scrape interval
	maxHeader     = 64 << 10        // bytes
	// MaxConns bounds the connections at a time.
	MaxConns = 512
)

// New makes a server. Beyond MaxConns the connection that has been idle longest makes room for a
// new one; if none is idle, the new one is closed. An answer must be sent within a minute of its
// request's header. Handlers that stream set their own deadlines with http.ResponseController.
func New(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12},
		ConnState:         newConns(MaxConns).changed,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// conns are the open connections. Those that wait for a request are in the queue, the longest wait
// first.
type conns struct {
	max int

	mu    sync.Mutex
	queue *list.List                 // of net.Conn
	waits map[net.Conn]*list.Element // nil: at work
}

func newConns(most int) *conns {
	return &conns{max: most, queue: list.New(), waits: map[net.Conn]*list.Element{}}
}

// changed is http.Server's ConnState.
func (c *conns) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.waits[conn]; e != nil {
		c.queue.Remove(e)
	}
	switch state {
	case http.StateNew:
		if len(c.waits) >= c.max && !c.makeRoom() {
			go conn.Close() // the server sees it end, and forgets it
		}
		c.waits[conn] = c.queue.PushBack(conn)
	case http.StateIdle:
		c.waits[conn] = c.queue.PushBack(conn)
	case http.StateActive:
		c.waits[conn] = nil
	case http.StateClosed, http.StateHijacked:
		delete(c.waits, conn)
	}
}

// makeRoom closes the connection that has waited longest, if one waits.
func (c *conns) makeRoom() bool {
	e := c.queue.Front()
	if e == nil {
		return false
	}
	conn := c.queue.Remove(e).(net.Conn)
	delete(c.waits, conn)
	go conn.Close() // a TLS connection sends its close notification first; the server's goroutine ends with it
	return true
}
