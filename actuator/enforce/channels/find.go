package channels

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// search is a look for the groups of one process. It goes on when its callers give up: that of
// a process that ran before us can take the driver many seconds, and must come to an end
// once. Nothing is changed by it, so it waits for nobody.
type search struct {
	done   chan struct{}
	groups []rm.Group
	err    error
	ended  time.Duration
}

// keepSearch is how long the result of one counts for who comes later.
const keepSearch = 10 * time.Second

// find looks for the groups of a process, until ctx ends.
func (e *Enforcer) find(ctx context.Context, p rm.Process) ([]rm.Group, error) {
	e.mu.Lock()
	s := e.searches[p]
	if s == nil || s.over() && e.o.Now()-s.ended > keepSearch {
		s = &search{done: make(chan struct{})}
		e.searches[p] = s
		go e.search(context.WithoutCancel(ctx), p, s)
	}
	e.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("the search for its channel groups has not ended: %w", ctx.Err())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.searches[p] == s {
		delete(e.searches, p)
	}
	return s.groups, s.err
}

func (s *search) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (e *Enforcer) search(ctx context.Context, p rm.Process, s *search) {
	defer close(s.done)
	s.err = errors.New("the search was broken off")
	ctx, cancel := context.WithTimeout(ctx, e.o.FindDeadline)
	defer cancel()
	s.groups, s.err = e.driver().Find(ctx, p)
	s.ended = e.o.Now()
	if s.err != nil {
		return
	}
	k := e.knownOf(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	k.groups, k.found = s.groups, len(s.groups) > 0 // one without any may have some soon
}

// groupsOf returns the groups that were found last.
func (e *Enforcer) groupsOf(p rm.Process) (groups []rm.Group, found bool) {
	k := e.knownOf(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	return k.groups, k.found
}

func (e *Enforcer) forgetGroups(p rm.Process) {
	k := e.knownOf(p)
	e.mu.Lock()
	defer e.mu.Unlock()
	k.found = false
}
