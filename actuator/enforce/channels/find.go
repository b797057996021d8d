package channels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// search is a look for the groups of one process. It goes on when its callers give up: that of
// a process that ran before us can take seconds, and must come to an end once. Nothing is
// changed by it, so it waits for nobody. What it has found so far counts at once.
type search struct {
	began chan struct{} // closed with the first result
	done  chan struct{}
	// Guarded by the enforcer's mu.
	groups []rm.Group
	err    error // rm.ErrUnfinished while it goes on
	ended  time.Duration
}

const (
	// keepSearch is how long the result of one counts for who comes later.
	keepSearch = 10 * time.Second
	// goOnAfter is when one goes on that the driver has not ended.
	goOnAfter = 50 * time.Millisecond
)

// find looks for the groups of a process, until the search or ctx ends. With rm.ErrUnfinished
// there may be more than it returns.
func (e *Enforcer) find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	s := e.searchFor(ctx, p)
	return e.await(ctx, p, s, s.done)
}

// findSome is find, and does not wait for more than what is found at once.
func (e *Enforcer) findSome(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	s := e.searchFor(ctx, p)
	return e.await(ctx, p, s, s.began)
}

// searchFor returns the search for the groups of a process, and begins it if there is none.
func (e *Enforcer) searchFor(ctx context.Context, p rm.Process) *search {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.searches[p]
	if s == nil || isClosed(s.done) && e.o.Now()-s.ended > keepSearch {
		s = &search{began: make(chan struct{}), done: make(chan struct{}), err: errors.New("the search was broken off")}
		e.searches[p] = s
		go e.search(context.WithoutCancel(ctx), p, s)
	}
	return s
}

func (e *Enforcer) await(ctx context.Context, p rm.Process, s *search, until chan struct{}) ([]rm.Group, error) {
	select {
	case <-until:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !isClosed(s.began) && !isClosed(s.done) {
		return nil, fmt.Errorf("its channel groups: %w: %w", rm.ErrUnfinished, ctx.Err())
	}
	// Whoever has the result of one that has come to its end has it for the last time, also
	// where that end is not told yet: the next look is a new one.
	if (isClosed(s.done) || !errors.Is(s.err, rm.ErrUnfinished)) && e.searches[p] == s {
		delete(e.searches, p)
	}
	return s.groups, s.err
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (e *Enforcer) search(ctx context.Context, p rm.Process, s *search) {
	defer close(s.done)
	ctx, cancel := context.WithTimeout(ctx, e.o.FindDeadline)
	defer cancel()
	if !e.searchOnce(ctx, p, s) {
		return
	}
	again := time.NewTicker(goOnAfter)
	defer again.Stop()
	for goesOn := true; goesOn; goesOn = e.searchOnce(ctx, p, s) {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.searches[p] == s {
		delete(e.searches, p) // its callers had what it found meanwhile: the next look is a new one
	}
}

// searchOnce looks, and reports whether the search goes on.
func (e *Enforcer) searchOnce(ctx context.Context, p rm.Process, s *search) bool {
	defer func() {
		if !isClosed(s.began) {
			close(s.began)
		}
	}()
	groups, err := e.driver().Find(ctx, p)
	unfinished := errors.Is(err, rm.ErrUnfinished)
	k := e.knownOf(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.groups, s.err, s.ended = groups, err, e.o.Now()
	if err == nil || unfinished {
		k.groups, k.found = groups, len(groups) > 0 // one without any may have some soon
		k.unfinished = unfinished
	}
	return unfinished
}

// look finds out about the groups of one process. Those of a search that goes on count.
func (e *Enforcer) look(ctx context.Context, m *member, fresh bool) {
	k := e.knownOf(m.Process)
	e.mu.Lock()
	groups, found, unfinished := k.groups, k.found, k.unfinished
	e.mu.Unlock()
	if found && !fresh {
		m.groups, m.unfinished = groups, unfinished
		if unfinished {
			e.searchFor(ctx, m.Process) // nobody waits for it
		}
		return
	}
	m.groups, m.err = e.findSome(ctx, m.Process)
	if !errors.Is(m.err, rm.ErrUnfinished) {
		return
	}
	m.unfinished = true
	if len(m.groups) == 0 && ctx.Err() != nil {
		m.err = fmt.Errorf("%w yet: %w", ErrNoGroup, m.err)
		return
	}
	m.err = nil
}

// groupOf returns the group with this key.
func groupOf(list []rm.Group, k key) (rm.Group, bool) {
	at := slices.IndexFunc(list, func(g rm.Group) bool { return keyOf(g) == k })
	if at < 0 {
		return rm.Group{}, false
	}
	return list[at], true
}

func (e *Enforcer) forgetGroups(p rm.Process) {
	k := e.knownOf(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	k.found = false
}
