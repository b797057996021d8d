package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/internal/webserver"
)

const (
	// soonest and latest bound the time between two renderings while there are readers.
	// Changes in between are rendered together.
	soonest = 250 * time.Millisecond
	latest  = time.Second
	// heartbeat keeps a silent stream open through proxies.
	heartbeat = 15 * time.Second
	// maxReaders bounds the streams.
	maxReaders = 256
)

// hub renders each variant once for all of its readers, and nothing without readers.
type hub struct {
	render func(variant) map[string]string

	mu      sync.Mutex
	shows   map[variant]*show
	readers int
}

// show is one variant with readers.
type show struct {
	readers int
	stop    context.CancelFunc
	wake    chan struct{} // capacity 1

	mu   sync.Mutex
	now  map[string]string // by section; nil before the first rendering
	next chan struct{}     // closed when there is a younger one
}

func newHub(render func(variant) map[string]string) *hub {
	return &hub{render: render, shows: map[variant]*show{}}
}

// join adds a reader. It fails when there are too many; leave must be called else.
func (h *hub) join(v variant) (_ *show, leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.readers >= maxReaders {
		return nil, nil, false
	}
	h.readers++
	s := h.shows[v]
	if s == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s = &show{stop: cancel, wake: make(chan struct{}, 1), next: make(chan struct{})}
		h.shows[v] = s
		go h.run(ctx, v, s)
	}
	s.readers++
	return s, func() { h.leave(v, s) }, true
}

func (h *hub) leave(v variant, s *show) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers--
	if s.readers--; s.readers == 0 {
		s.stop()
		delete(h.shows, v)
	}
}

// changed wakes those that render.
func (h *hub) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.shows {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// run renders until there are no readers.
func (h *hub) run(ctx context.Context, v variant, s *show) {
	for {
		s.publish(h.render(v))
		pause, tick := time.NewTimer(soonest), time.NewTimer(latest)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-tick.C:
		}
		tick.Stop()
	}
}

// publish wakes the readers if a section changed.
func (s *show) publish(f map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == nil || len(difference(s.now, f)) == 0 {
		return
	}
	s.now = f
	close(s.next)
	s.next = make(chan struct{})
}

// latest returns the youngest rendering, and a channel that the next one closes.
func (s *show) latest() (map[string]string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.next
}

// difference is what of f is not in old.
func difference(old, f map[string]string) map[string]string {
	d := map[string]string{}
	for id, html := range f {
		if was, ok := old[id]; !ok || was != html {
			d[id] = html
		}
	}
	return d
}

// serveEvents streams the sections that changed, first all. A slow reader misses
// what is overtaken, and is dropped when it reads nothing at all.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	s, leave, ok := p.hub.join(variant{window: window(r.URL.Query().Get("window")), may: p.o.Gate.Check(r) == nil})
	if !ok {
		http.Error(w, "too many readers of this page", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies would hold it back
	stream := webserver.NewStream(w)
	write := func(format string, args ...any) bool {
		_, err := fmt.Fprintf(stream, format, args...)
		return err == nil
	}
	if !write("retry: 1000\nevent: hello\ndata: %s\n\n", p.version) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	var sent map[string]string
	for {
		now, next := s.latest()
		if d := difference(sent, now); len(d) > 0 {
			data, err := json.Marshal(d)
			if err != nil || !write("event: sections\ndata: %s\n\n", data) {
				return
			}
			sent = now
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.ended:
			return
		case <-next:
		case <-beat.C:
			if !write(": still here\n\n") {
				return
			}
		}
	}
}

const (
	// rankingAge is how old the ranking may be that is shown, and rankingPatience
	// how long it may take.
	rankingAge      = 5 * time.Second
	rankingPatience = 10 * time.Second
	// firstRanking is how long a page waits for a ranking when there is none.
	firstRanking = 2 * time.Second
)

// cache keeps the ranking, which may come from far.
type cache struct {
	ask func(context.Context) placement.Overview

	mu   sync.Mutex
	last placement.Overview
	at   time.Time
	busy chan struct{} // closed when the call under way ends; nil: none is
}

// value returns the last ranking at once, and asks for another when it is old.
func (c *cache) value(now time.Time) placement.Overview {
	if c.ask == nil {
		return placement.Overview{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refresh(now)
	if c.at.IsZero() {
		return placement.Overview{Known: true, Error: "not known yet"}
	}
	return c.last
}

// await waits a moment when the ranking is old.
func (c *cache) await(ctx context.Context, now time.Time) {
	if c.ask == nil {
		return
	}
	c.mu.Lock()
	c.refresh(now)
	busy := c.busy
	c.mu.Unlock()
	if busy == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, firstRanking)
	defer cancel()
	select {
	case <-busy:
	case <-ctx.Done():
	}
}

// refresh begins a call if one is due; the caller holds mu.
func (c *cache) refresh(now time.Time) {
	if c.busy != nil || !c.at.IsZero() && now.Sub(c.at) < rankingAge {
		return
	}
	busy := make(chan struct{})
	c.busy = busy
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), rankingPatience)
		defer cancel()
		r := c.ask(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last, c.at, c.busy = r, now, nil
		close(busy)
	}()
}
