package guardian

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
)

// bringBack tries to swap containers in if it is time, and sets when to retry: ever later, up to half
// a minute, since each try thaws a stuck container. It returns how many are left. The guardian does
// not keep the actuator's lock between tries, because room may never come.
func (g *Guardian) bringBack(ctx context.Context) (left int) {
	if g.o.Swaps == nil {
		return 0
	}
	if g.swaps.wait > 0 && !g.swaps.due(g.o.Now()) {
		return g.swapped
	}
	defer func() { g.swapped = left }()
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

// releaseAll tries once to release everything on record, and sets when to retry what is left. An
// actuator may begin between two tries: a container that cannot be released must not keep it from
// all others. The caller holds the actuator's lock. It returns an error if ctx ends before the
// journal could be read.
func (g *Guardian) releaseAll(ctx context.Context) (left int, err error) {
	g.kept = 0
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		holds, err := g.o.Journal.List()
		if err != nil && g.folderGone() {
			return 0, nil
		}
		g.trouble("cannot read the journal; will try again", err)
		if err == nil {
			g.running(holds) // forgets those that are not on record
		}
		if err == nil && len(holds) == 0 {
			g.records = backoff{}
			return 0, nil
		}
		tried := g.releaseEach(ctx, holds)
		switch {
		case err == nil && tried.left == 0:
			continue
		case err == nil && ctx.Err() == nil:
			g.retryLater(tried)
			return tried.left, nil
		}
		select {
		case <-ctx.Done():
			return max(len(holds), 1), ctx.Err()
		case <-time.After(wait):
		}
	}
}

// tried is what came of a try to release containers.
type tried struct {
	left int // on record
	held int // of these, still held as far as is known; the others run
}

// tryFor bounds one try. It is less than an actuator waits for its lock when it starts.
const tryFor = 8 * time.Second

// releaseEach releases containers, all at once, since each takes the engine some time.
func (g *Guardian) releaseEach(ctx context.Context, holds []record.Hold) (t tried) {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	done := make(chan error, len(holds))
	for _, h := range holds {
		go func() { done <- g.releaseAlone(ctx, h, "the actuator is gone") }()
	}
	for range holds {
		err := <-done
		silent := errors.Is(err, enforce.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errBusy)
		g.answered = g.answered || !silent
		if err == nil {
			continue
		}
		t.left++
		if errors.Is(err, journal.ErrNotWritable) {
			continue
		}
		t.held++
	}
	return t
}

// retryLater sets when to retry what is on record though an actuator may begin.
func (g *Guardian) retryLater(t tried) {
	g.kept = t.held
	if t.held > 0 {
		g.records.later(g.o.Now(), 50*time.Millisecond, 2*time.Second)
		return
	}
	g.records.later(g.o.Now(), 500*time.Millisecond, 30*time.Second)
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

// errBusy means that expire released the container meanwhile: the record says whether it succeeded.
var errBusy = errors.New("another release of it went on")

// releaseAlone is release. While expire releases the container it waits, and returns errBusy.
func (g *Guardian) releaseAlone(ctx context.Context, h record.Hold, why string) error {
	end, busy := g.begin(h.ContainerID)
	if end != nil {
		defer end()
		return g.release(ctx, h, why)
	}
	select {
	case <-busy:
	case <-ctx.Done():
	}
	return errBusy
}

// release releases one container. It returns an error while the container is on record.
func (g *Guardian) release(ctx context.Context, h record.Hold, why string) error {
	started := g.o.Now()
	if g.isRunning(h) { // if it is paused now, we did not do that
		err := g.o.Journal.Remove(h.ContainerID)
		g.troubleOf(h, "cannot take a container off the record; it runs", err)
		return err
	}
	err := g.o.Enforcer.Unpause(ctx, h.ContainerID)
	if errors.Is(err, journal.ErrNotWritable) {
		g.setRunning(h)
		g.troubleOf(h, "cannot take a container off the record; it runs", err)
		return err
	}
	if errors.Is(err, enforce.ErrForeign) {
		err = nil
	}
	g.troubleOf(h, "cannot release a container; will try again", err)
	if err != nil {
		return err
	}
	g.o.Logger.Warn("released a container", "container", h.Container, "why", why,
		"held_for", started.Sub(h.Since), "took", g.o.Now().Sub(started))
	return nil
}

// expireLeases calls expire until ctx ends. It has its own goroutine, as sweepChannels has: an
// engine that hangs must not delay what else the guardian does within a second.
func (g *Guardian) expireLeases(ctx context.Context) {
	g.eachPoll(ctx, func() { g.expire(ctx) })
}

// eachPoll calls f with each Options.Poll until ctx ends.
func (g *Guardian) eachPoll(ctx context.Context, f func()) {
	tick := time.NewTicker(g.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
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
	g.running(holds) // forgets those that are not on record
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
	err := g.release(ctx, h, "its lease ran out and the actuator did not end it")
	now := g.o.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
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

// setRunning remembers that a container runs though its record cannot be removed.
func (g *Guardian) setRunning(h record.Hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[h.ContainerID] = h.Since
}

// isRunning reports whether this hold of the container was released already.
func (g *Guardian) isRunning(h record.Hold) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, ok := g.runs[h.ContainerID]
	return ok && since.Equal(h.Since)
}

// running counts those of the holds on record that were released already, and forgets all others,
// and the trouble with containers that are not on record.
func (g *Guardian) running(holds []record.Hold) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	runs, recorded := map[string]time.Time{}, map[string]bool{}
	for _, h := range holds {
		recorded[h.ContainerID] = true
		if since, ok := g.runs[h.ContainerID]; ok && since.Equal(h.Since) {
			runs[h.ContainerID] = since
		}
	}
	g.runs = runs
	maps.DeleteFunc(g.lastLogged, func(m matter, _ logged) bool { return m.container != "" && !recorded[m.container] })
	return len(runs)
}
