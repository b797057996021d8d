package memory

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/laxity/laxity/internal/cudaprobe"
)

// A container may have mounted a network file system: whoever opens or reads a file there waits for its
// server, perhaps for ever. So goroutines of its own read a container's files and its processes' memory maps, without
// a lock: one that searches it, then inspects its processes, and one that puts probes on them. More would let it use
// up our threads.

// errFileHangs says why a container may get more than its limit.
var errFileHangs = errors.New("its libcuda cannot be read: perhaps the server of a network file system is down")

const (
	// hangsAfter is how long files may be read before that is told.
	hangsAfter = 5 * time.Second
	// maxReading is how many goroutines may read files at a time: one that hangs keeps a thread.
	maxReading = 64
	// together is how long we wait for the searches of several containers, to list their processes at once.
	together = time.Second
	// closing is how long the end of the guard waits for what may hang.
	closing = 5 * time.Second
)

// read begins a goroutine that reads files of a container as soon as there is room. It calls onHang once no
// progress was told for fileLimit.
func (g *Guard) read(c *container, onHang func(), files func(progress func())) {
	c.reading++
	limit := time.Duration(g.fileLimit.Load())
	hang := time.AfterFunc(limit, onHang)
	g.looking.Go(func() {
		defer func() {
			hang.Stop()
			g.mu.Lock()
			defer g.mu.Unlock()
			c.reading--
		}()
		select {
		case g.room <- struct{}{}:
			defer func() { <-g.room }()
			files(func() { hang.Reset(limit) })
		case <-g.ending:
		}
	})
}

// stillRead returns the containers whose files are being read, by id.
func (g *Guard) stillRead() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, c := range g.containers {
		if c.reading > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// onHang tells that files of a container hang.
func (g *Guard) onHang(c *container) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangs(c)
}

func (g *Guard) hangs(c *container) {
	if g.closed || g.containers[c.ID] != c {
		return
	}
	g.o.Logger.Warn("the memory of a container's processes may not be guarded", "container", c.ID, "why", errFileHangs)
	g.o.Failed(c.ID, errFileHangs.Error())
}

// onAttachHangs handles that no probe was put on a container's processes for long, though some are due.
func (g *Guard) onAttachHangs(c *container) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.attaching {
		return
	}
	g.hangs(c)
	c.stuck = true
	for _, p := range c.processes {
		if p.attaching || p.due != 0 {
			p.waits()
		}
	}
}

// attach puts probes on the processes of a container that are due, one after another.
func (g *Guard) attach(c *container) {
	if c.attaching {
		return
	}
	c.attaching = true
	g.read(c, func() { g.onAttachHangs(c) }, func(progress func()) {
		for put := g.next(c); put != nil; put = g.next(c) {
			put()
			progress()
		}
	})
}

// next returns what puts probes on the next process of a container; nil if none is due.
func (g *Guard) next(c *container) (put func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.stuck = false
	for _, p := range c.processes {
		if !p.following.IsZero() { // it is stopped meanwhile
			return func() { g.putOnGraphs(p) }
		}
	}
	p := c.first()
	if p == nil {
		c.attaching = false
		return nil
	}
	p.due, p.starts, p.attaching = 0, false, true
	return func() { g.putOn(p) }
}

// first returns which of the processes that are due is the next: those without probes before others, those that
// may be about to allocate before others, then in their order. It returns nil if none is due.
func (c *container) first() *process {
	rank := func(p *process) (r int) {
		if p.guarded {
			r += 2
		}
		if !p.starts {
			r++
		}
		return r
	}
	var first *process
	for _, p := range c.processes {
		if p.due != 0 && (first == nil || cmp.Or(cmp.Compare(rank(p), rank(first)), cmp.Compare(p.due, first.due)) < 0) {
			first = p
		}
	}
	return first
}

// putOn puts probes on a process. On one that is guarded already it puts them where it has loaded the
// driver since.
func (g *Guard) putOn(p *process) {
	err := g.kernel.Attach(p.pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	p.attaching, p.obstacle = false, ""
	if g.processes[p.pid] != p {
		return // removed meanwhile, and its probes with it
	}
	switch {
	case err == nil:
		p.guarded = true
		if p.missed { // what it allocated until now passed unseen
			p.missed, p.of.unseen = false, g.o.Now()
		}
	case p.guarded: // it keeps its probes
	case p.due != 0: // it began another program meanwhile: begin anew with that
		g.remove(p)
		g.adopt(p.pid, p.of, true)
	case p.alive() && !g.closed && !errors.Is(err, cudaprobe.ErrNotLoaded):
		g.exclude(p, err.Error())
	default:
		g.remove(p)
	}
}

// putOnGraphs puts the probes on a process that follow its graphs.
func (g *Guard) putOnGraphs(p *process) {
	err := g.kernel.FollowGraphs(p.pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	p.following, p.followed, p.unfollowed = time.Time{}, err == nil, err
	notify(g.again)
}

// follow has the probes put on that follow a process's graphs, once for a call that adds a node to one. It
// returns true when they are there, or the call is not to wait for them.
func (g *Guard) follow(p *process, q *question) (over bool) {
	if p.following.IsZero() && !p.followed && !q.tried {
		q.tried = true
		p.following, p.unfollowed = g.o.Now(), errFileHangs
		g.attach(p.of)
	}
	return p.following.IsZero() || g.o.Now().Sub(p.following) > time.Duration(g.fileLimit.Load())
}
