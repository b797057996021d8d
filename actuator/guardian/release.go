package guardian

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
)

// bringBack tries once to swap containers in, and sets when to retry: ever later, up to half a
// minute, since each try thaws a stuck container. The guardian does not keep the actuator's lock
// between tries, because room may never come.
func (g *Guardian) bringBack(ctx context.Context) (left int) {
	if g.o.Swaps == nil {
		return 0
	}
	left, err := g.o.Swaps(ctx)
	g.trouble("cannot swap containers in; will try again", err)
	if err != nil {
		left = max(left, 1)
	}
	if left == 0 {
		g.swaps = backoff{}
		return 0
	}
	g.swaps.later(g.o.Now(), 500*time.Millisecond, 30*time.Second)
	return left
}

// folderGone reports whether somebody removed the state folder, and logs it. It does not come back:
// an actuator makes a new one.
func (g *Guardian) folderGone() bool {
	_, err := os.Stat(g.o.StateDir)
	gone := errors.Is(err, fs.ErrNotExist)
	if gone {
		g.o.Logger.Warn("the state folder is gone, and with it all that was on record", "state_dir", g.o.StateDir)
	}
	return gone
}

// releaseAll releases everything on record. It retries until nothing is left or ctx ends. The
// caller holds the actuator's lock.
func (g *Guardian) releaseAll(ctx context.Context) (left int, err error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		holds, err := g.o.Journal.List()
		if err != nil && g.folderGone() {
			return 0, nil
		}
		g.trouble("cannot read the journal; will try again", err)
		if err == nil && len(holds) == 0 {
			g.records = backoff{}
			g.forget()
			return 0, nil
		}
		// All at once: each takes the engine some time.
		done := make(chan bool, len(holds))
		for _, h := range holds {
			go func() { done <- g.releaseAlone(ctx, h, "the actuator is gone") }()
		}
		ok := err == nil
		for range holds {
			ok = <-done && ok
		}
		if n := g.running(); n > 0 && err == nil && n >= len(holds) {
			// All of these run: an actuator may begin.
			g.records.later(g.o.Now(), 500*time.Millisecond, 30*time.Second)
			return n, nil
		}
		if ok {
			continue
		}
		select {
		case <-ctx.Done():
			return max(len(holds), 1), ctx.Err()
		case <-time.After(wait):
		}
	}
}

// begin claims a container for a release. If another release of it goes on, end is nil, and busy is
// closed when that ends.
func (g *Guardian) begin(id string) (end func(), busy <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if busy := g.releasing[id]; busy != nil {
		return nil, busy
	}
	ended := make(chan struct{})
	g.releasing[id] = ended
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.releasing, id)
		close(ended)
	}, nil
}

// releaseAlone is release. While expire releases the container it waits, and reports false: the
// record says whether that succeeded.
func (g *Guardian) releaseAlone(ctx context.Context, h record.Hold, why string) bool {
	end, busy := g.begin(h.ContainerID)
	if end != nil {
		defer end()
		return g.release(ctx, h, why)
	}
	select {
	case <-busy:
	case <-ctx.Done():
	}
	return false
}

// release releases one container, and reports whether its record is removed.
func (g *Guardian) release(ctx context.Context, h record.Hold, why string) bool {
	started := g.o.Now()
	if g.isRunning(h.ContainerID) { // if it is paused now, we did not do that
		err := g.o.Journal.Remove(h.ContainerID)
		g.trouble("cannot take a container off the record; it runs", err, "container", h.Container)
		return err == nil && g.setRunning(h.ContainerID, false)
	}
	err := g.o.Enforcer.Unpause(ctx, h.ContainerID)
	if errors.Is(err, journal.ErrNotWritable) {
		g.trouble("cannot take a container off the record; it runs", err, "container", h.Container)
		return !g.setRunning(h.ContainerID, true)
	}
	if err != nil && !errors.Is(err, enforce.ErrForeign) {
		g.o.Logger.Error("cannot release a container; will try again", "container", h.Container, "err", err)
		return false
	}
	g.o.Logger.Warn("released a container", "container", h.Container, "why", why,
		"held_for", started.Sub(h.Since), "took", g.o.Now().Sub(started))
	return true
}

// expireLeases calls expire until ctx ends. It has its own goroutine, as sweepChannels has: an
// engine that hangs must not delay what else the guardian does within a second.
func (g *Guardian) expireLeases(ctx context.Context) {
	tick := time.NewTicker(g.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.expire(ctx)
		}
	}
}

// expire begins to release the holds whose lease ran out though an actuator lives, because that
// hangs or has a bug. It is cheap: a readdir of a folder that is nearly always empty.
func (g *Guardian) expire(ctx context.Context) {
	holds, err := g.o.Journal.List()
	if err != nil {
		return // releaseAll logs it when it matters
	}
	now := g.o.Now()
	g.see(holds, now)
	for _, h := range holds {
		if !g.expired(h.ContainerID, now) {
			continue
		}
		if end, _ := g.begin(h.ContainerID); end != nil {
			go func() {
				defer end()
				g.releaseExpired(ctx, h)
			}()
		}
	}
}

// releaseExpired releases a container whose lease ran out, and sets when to retry.
func (g *Guardian) releaseExpired(ctx context.Context, h record.Hold) {
	// Read again: it may have been renewed since List.
	if again, ok, err := g.o.Journal.Get(h.ContainerID); err == nil && (!ok || !again.Expires.Equal(h.Expires)) || ctx.Err() != nil {
		return
	}
	released := g.release(ctx, h, "its lease ran out and the actuator did not end it")
	now := g.o.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if released {
		delete(g.retry, h.ContainerID)
		return
	}
	b := g.retry[h.ContainerID]
	b.later(now, 200*time.Millisecond, 5*time.Second)
	g.retry[h.ContainerID] = b
}

// expired reports whether a lease ended so long ago that we end the hold, and now.
func (g *Guardian) expired(id string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !now.Before(g.leases[id].ends.Add(g.o.Grace)) && !now.Before(g.retry[id].next)
}

// see remembers the leases on record. It reads the wall clock once for each renewal.
func (g *Guardian) see(holds []record.Hold, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := make(map[string]lease, len(holds))
	for _, h := range holds {
		l, known := g.leases[h.ContainerID]
		if !known || !l.recorded.Equal(h.Expires) {
			l = lease{recorded: h.Expires, ends: now.Add(min(h.Expires.Sub(now), g.o.Lease))}
		}
		seen[h.ContainerID] = l
	}
	g.leases = seen
}

// setRunning sets whether a container runs though its record cannot be removed. It returns true.
func (g *Guardian) setRunning(id string, runs bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.runs, id); runs {
		g.runs[id] = true
	}
	return true
}

func (g *Guardian) isRunning(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.runs[id]
}

func (g *Guardian) running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runs)
}

func (g *Guardian) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.runs)
}
