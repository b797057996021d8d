package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// missed is a process that could not be looked at, and may be one to guard. That is tried again.
type missed struct {
	of     *container // nil: nobody knows its container, or that is not covered
	why    string
	starts bool // see process
}

const (
	// tryAfter is how long it is until missed processes are looked at again.
	tryAfter = 250 * time.Millisecond
	// maxMissed bounds how many are remembered. Beyond it something is wrong with this machine, or with us.
	maxMissed = 1024
)

// gone reports whether an error says that there is no such process any more.
func gone(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) }

// miss notes that a process could not be looked at. c may be nil, see missed.
func (g *Guard) miss(pid int, c *container, starts bool, err error) {
	was := g.missed[pid]
	if gone(err) || g.closed || errors.Is(err, os.ErrClosed) || was == nil && len(g.missed) >= maxMissed {
		delete(g.missed, pid)
		return
	}
	m := &missed{c, err.Error(), starts}
	if was != nil {
		m.starts = starts || was.starts
		if c == nil && was.of != nil { // what was told of its container has not ended
			c = g.containers[was.of.ID]
			m.of = c
		}
	}
	g.missed[pid] = m
	if c != nil {
		c.unseen = g.o.Now()
	}
	if was != nil && was.of == c && was.why == m.why {
		return
	}
	id := ""
	if c != nil {
		id = c.ID
		g.o.Passing(id, fmt.Sprintf("process %d cannot be guarded: %s", pid, m.why))
	}
	g.o.Logger.Warn("a process cannot be guarded now; that is tried again", "pid", pid, "container", id, "why", m.why)
}

// unguarded reports whether a process of a container may allocate unseen: it could not be looked at, or
// could not be guarded, or its files hang. So may one that nobody knows the container of, if it is on
// the GPUs of this one.
func (g *Guard) unguarded(c *container) bool {
	for pid, m := range g.missed {
		if m.of == nil && g.contexts(c, pid) != 0 || m.of != nil && m.of.ID == c.ID {
			return true
		}
	}
	for _, p := range c.processes {
		if p.missed || p.obstacle != "" {
			return true
		}
	}
	return c.stuck
}

// tryMissed looks again at the processes that could not be looked at.
func (g *Guard) tryMissed() {
	again := map[int]bool{} // by PID: it has called cuInit
	g.mu.Lock()
	if now := g.o.Now(); len(g.missed) > 0 && now.Sub(g.tried) >= tryAfter {
		g.tried = now
		for pid, m := range g.missed {
			again[pid] = m.starts
		}
	}
	g.mu.Unlock()
	for pid, starts := range again {
		g.consider(pid, starts)
	}
}

// consider guards a process if its container is covered. starts: it has just called cuInit.
func (g *Guard) consider(pid int, starts bool) {
	id, in, err := g.o.Container(pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.miss(pid, nil, starts, err)
		return
	}
	c := g.containers[id]
	if in && c != nil {
		g.adopt(pid, c, starts)
		return
	}
	delete(g.missed, pid)
	if !in || !starts {
		return
	}
	if g.earlyCount++; g.earlyCount > maxEarly { // look finds them all the same, a little later
		clear(g.early)
		g.earlyCount = 1
	}
	g.early[id] = append(g.early[id], pid)
}
