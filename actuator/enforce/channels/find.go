package channels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// search finds the groups of one process. It continues when its callers give up: for a process that
// began before us it can take seconds, and must finish once. It changes nothing, so it takes no
// lock. Callers see what it has found so far.
type search struct {
	began chan struct{} // closed with the first result
	done  chan struct{}
	// Guarded by the enforcer's mu.
	groups []rm.Group
	err    error // rm.ErrUnfinished while it goes on
	ended  time.Duration
}

const (
	// keepSearch is how long the result of a search counts for later callers.
	keepSearch = 10 * time.Second
	// goOnAfter is when a search that the driver has not finished is continued.
	goOnAfter = 50 * time.Millisecond
)

// find returns the groups of a process, and waits until the search or ctx ends. With
// rm.ErrUnfinished there may be more.
func (e *Enforcer) find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	s := e.searchFor(ctx, p)
	return e.await(ctx, p, s, s.done)
}

// findSome is find, but returns after the first result.
func (e *Enforcer) findSome(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	s := e.searchFor(ctx, p)
	return e.await(ctx, p, s, s.began)
}

// searchFor returns the search for the groups of a process, and starts it if there is none.
func (e *Enforcer) searchFor(ctx context.Context, p rm.Process) *search {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.searches[p]
	if s == nil || isClosed(s.done) && e.o.Now()-s.ended > keepSearch {
		s = &search{began: make(chan struct{}), done: make(chan struct{}), err: errors.New("the search was aborted")}
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
	// A finished search has given its result for the last time, even if its end is not reported yet:
	// the next call starts a new one.
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
		delete(e.searches, p) // its callers had what it found meanwhile: the next call starts a new search
	}
}

// searchOnce calls the driver once, and reports whether the search continues.
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
		k.groups, k.found = groups, len(groups) > 0 // a process without groups may soon have some
		k.unfinished = unfinished
	}
	return unfinished
}

// look finds the groups of one process. Those of an unfinished search count.
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
	if len(m.groups) == 0 && !found && m.err != nil && errors.Is(m.err, context.DeadlineExceeded) && !errors.Is(m.err, rm.ErrUnfinished) {
		m.err = fmt.Errorf("%w: %w", rm.ErrUnfinished, m.err) // the driver is busy making contexts: the next search asks again
	}
	if !errors.Is(m.err, rm.ErrUnfinished) {
		m.late = !found && ctx.Err() != nil
		return
	}
	m.unfinished = true
	if m.late = !found && ctx.Err() != nil; len(m.groups) == 0 && ctx.Err() != nil {
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
