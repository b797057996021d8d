package memory

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/cudaprobe"
)

var errDropped = errors.New("the driver does not list it any more")

// onUsage handles a reading. Of a GPU that cannot be read it keeps what was read before, so that no
// memory there seems to be given back.
func (g *Guard) onUsage(r reading) {
	if r.err != nil {
		if g.blinded.IsZero() {
			g.blinded = r.began
			g.o.Logger.Error("it cannot be read who holds how much GPU memory", "err", r.err)
		}
		return
	}
	usage, blindedOn := make(map[string]task.Usage, len(r.usage)), map[string]time.Time{}
	for gpu := range g.usage {
		if g.given(gpu) {
			usage[gpu] = task.Usage{Err: errDropped} // unless it is in this reading
		}
	}
	maps.Copy(usage, r.usage)
	for gpu, u := range usage {
		if u.Err == nil {
			continue
		}
		since, was := g.blindedOn[gpu]
		if !was {
			since = r.began
			g.o.Logger.Error("it cannot be read who holds how much memory on a GPU", "gpu", gpu, "err", u.Err)
		}
		blindedOn[gpu], usage[gpu] = since, g.usage[gpu]
	}
	g.usage, g.blinded, g.blindedOn = usage, time.Time{}, blindedOn
}

// forget removes a program from the usage: where a GPU cannot be read, nothing else would.
func (g *Guard) forget(pid int) {
	for _, u := range g.usage {
		delete(u.Processes, pid)
	}
}

// given reports whether a container was given this GPU.
func (g *Guard) given(gpu string) bool {
	for _, c := range g.containers {
		if slices.Contains(c.GPUs, gpu) {
			return true
		}
	}
	return false
}

// blind reports whether no usage can be read.
func (g *Guard) blind() bool { return g.usage == nil || !g.blinded.IsZero() }

// unread says what cannot be read of the usage of a GPU, and since when; empty if it can be.
func (g *Guard) unread(gpu string) (what string, since time.Time) {
	if g.blind() {
		return "the GPU memory in use", g.blinded
	}
	if since, ok := g.blindedOn[gpu]; ok {
		return "the memory in use on " + gpu, since
	}
	return "", time.Time{}
}

// readable reports whether the usage of a GPU can be read.
func (g *Guard) readable(gpu string) bool {
	what, _ := g.unread(gpu)
	return what == ""
}

// failUnread is fail for want of a reading.
func (g *Guard) failUnread(c *container, why string) {
	g.failOpen(c, why)
	c.unseen = g.o.Now()
	g.o.Passing(c.ID, why)
}

// recover ends failUnread and what miss told, once no process of a container is unguarded and a reading
// shows it within its limit and one context. The reading must be so late that the driver lists all that
// passed unseen.
func (g *Guard) recover(c *container, s gathered) {
	unreadable := func(gpu string) bool { return !g.readable(gpu) }
	if c.unseen.IsZero() || s.began.Sub(c.unseen) < listing || g.unguarded(c) || slices.ContainsFunc(c.GPUs, unreadable) || g.over(c, s.calls) {
		return
	}
	c.unseen = time.Time{}
	g.o.Passing(c.ID, "")
}

// uncertain reports whether a process may be making a context, while one that it made may be on a GPU
// that cannot be read. The one that is being made may be listed first, and must not be taken for that.
func (g *Guard) uncertain(p *process, calls []cudaprobe.Call) bool {
	unreadable := func(gpu string) bool { return !g.readable(gpu) }
	running := func(call cudaprobe.Call) bool { return call.PID == p.pid && !call.Held }
	return slices.ContainsFunc(p.of.GPUs, unreadable) && slices.ContainsFunc(calls, running)
}
