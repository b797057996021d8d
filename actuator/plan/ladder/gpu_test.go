package ladder_test

import (
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
)

// gpu is a small model of a GPU's time slicing, in virtual time: whoever has work takes
// turns, each for its slice; a switch takes a while in which nobody computes; a slice
// that changes does so at once, also one that runs; who is off is passed over.
type gpu struct {
	now      time.Duration
	procs    []*proc
	last     *proc         // that computes, or did last
	running  bool          // last computes
	began    time.Duration // its slice
	crowded  bool          // somebody else has work
	ready    time.Duration // when the switch under way is over
	cost     time.Duration // of a switch
	save     time.Duration // of that, which the trace counts as time of the one that leaves
	switches int
	lost     time.Duration // somebody had work, and nobody computed: switches, and gaps that nobody could use
}

// proc is a process on it.
type proc struct {
	slice time.Duration
	off   bool
	left  time.Duration // of its work on the GPU; 0: it has none
	got   time.Duration
	// present is how long its context was on the GPU, came how often it came.
	present time.Duration
	came    int
	saved   time.Duration
}

func newGPU(cost time.Duration) *gpu { return &gpu{cost: cost} }

func (g *gpu) add(p *proc) {
	p.slice = ladder.DefaultSlice
	g.procs = append(g.procs, p)
}

func (p *proc) wants() bool { return p.left > 0 && !p.off }

// next is when something happens on the GPU by itself, or to if that comes before.
func (g *gpu) next(to time.Duration) time.Duration {
	switch {
	case g.ready > g.now:
		return min(to, g.ready)
	case g.running:
		to = min(to, g.now+g.last.left)
		if g.crowded {
			to = min(to, max(g.began+g.last.slice, g.now))
		}
	}
	return to
}

// pass lets time pass up to t, which is not after next.
func (g *gpu) pass(t time.Duration) {
	d := t - g.now
	if g.last != nil && g.ready <= g.now {
		g.last.present += d
	}
	if g.running && g.ready <= g.now {
		g.last.left -= d
		g.last.got += d
	} else {
		for _, p := range g.procs {
			if p.left > 0 {
				g.lost += d
				break
			}
		}
	}
	g.now = t
}

// choose decides who computes from now on. Call it after everything that happens.
func (g *gpu) choose() {
	if g.ready > g.now {
		return // a switch under way goes on
	}
	crowded := false
	for _, p := range g.procs {
		crowded = crowded || p != g.last && p.wants()
	}
	if g.running && g.last.wants() {
		if crowded && !g.crowded { // its slice began anew again and again meanwhile
			g.began = g.now - (g.now-g.began)%g.last.slice
		}
		if g.crowded = crowded; !crowded || g.now < g.began+g.last.slice {
			return
		}
	}
	g.crowded = crowded
	from := 0
	for i, p := range g.procs {
		if p == g.last {
			from = i + 1
		}
	}
	for i := range g.procs {
		p := g.procs[(from+i)%len(g.procs)]
		if !p.wants() {
			continue
		}
		if p != g.last {
			g.switches++
			p.came++
			if g.last != nil {
				g.last.saved += g.save
			}
			g.ready = g.now + g.cost
		}
		g.last, g.running, g.began = p, true, max(g.now, g.ready)
		g.crowded = false
		for _, o := range g.procs {
			g.crowded = g.crowded || o != p && o.wants()
		}
		return
	}
	g.running = false
}
