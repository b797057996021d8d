package access

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often one client may ask, and change something. Alertmanager sends each alert
// by itself, hundreds at once, and repeats what is refused.
const (
	requestsPerSecond, requestsBurst = 500, 2000
	changesPerSecond, changesBurst   = 100, 1000
	// maxStreams bounds those who watch and are not authenticated; an actuator and
	// some people do.
	maxStreams = 128
	// maxClients bounds the memory.
	maxClients = 1024
)

var (
	errTooOften = errors.New("too many requests a second; try again in a moment")
	errTooMany  = errors.New("too many watch already; ask without watch, or authenticate")
)

// clients has a limiter for each client's address.
type clients struct {
	limit rate.Limit
	burst int

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

func newClients(limit rate.Limit, burst int) *clients {
	return &clients{limit: limit, burst: burst, all: map[string]*rate.Limiter{}}
}

// allow counts a request.
func (c *clients) allow(remote string, now time.Time) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.all[host]
	if !ok {
		if len(c.all) >= maxClients {
			c.forget(now)
		}
		l = rate.NewLimiter(c.limit, c.burst)
		c.all[host] = l
	}
	return l.AllowN(now, 1)
}

// forget makes room: those who ask seldom are as new, and if all ask often one of
// them begins anew.
func (c *clients) forget(now time.Time) {
	for host, l := range c.all {
		if l.TokensAt(now) >= float64(c.burst) {
			delete(c.all, host)
		}
	}
	for host := range c.all {
		if len(c.all) < maxClients {
			return
		}
		delete(c.all, host)
	}
}
