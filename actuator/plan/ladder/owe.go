package ladder

import (
	"slices"
	"time"
)

// owe notes what each process is owed at the end of a turn.
func (p *planner) owe(moving []member) {
	t := &p.state.turn
	took := p.in.Now.Sub(t.began)
	if len(t.on) == 0 || took <= 0 {
		return
	}
	all, whole := p.gained(t.got)
	if exact(moving) {
		all, whole = p.earned(moving, took), true
	}
	useful := sum(all)
	if !whole {
		useful = took
	}
	t.useful = min(max(float64(useful)/float64(took), 0.5), 1)
	for _, m := range moving {
		if got, ok := all[m.ID]; ok {
			most := time.Duration(3 * m.part * float64(p.maxOff()))
			t.owed[m.ID] = min(max(t.owed[m.ID]+time.Duration(m.part*float64(useful))-got, 0), most)
		}
	}
	if whole && !exact(moving) && p.in.Now.Sub(t.since) >= stale {
		t.tasting.add(t.past, t.began, p.in.Now, moving, all)
	}
}

// earnings are what a process used of the time that it was on, in the last readings of context switches. Less
// than a tenth of a second may have been read, so what it got since is not known from its use alone.
type earnings struct{ used, on time.Duration }

// earningsOf is the time that earnings are of, at most.
const earningsOf = 500 * time.Millisecond

func (e earnings) add(used, on time.Duration) earnings {
	if e.used, e.on = e.used+used, e.on+on; e.on > earningsOf {
		e.used = time.Duration(float64(e.used) * float64(earningsOf) / float64(e.on))
		e.on = earningsOf
	}
	return e
}

// of is the part of the time that it is on that a process uses, 0–1, if it is known.
func (e earnings) of() (part float64, known bool) {
	if e.on == 0 {
		return 0, false
	}
	return min(float64(e.used)/float64(e.on), 1), true
}

// earn adds a reading.
func (p *planner) earn(moving []member, used map[string]time.Duration) {
	t, s := &p.state.turn, p.in.Switches
	for _, m := range p.tops {
		t.earns[m.ID] = t.earns[m.ID].add(used[m.ID], s.For)
	}
	for _, m := range moving {
		if on, _ := during(t.past, m.ID, s.From, s.to()); on > 0 {
			t.earns[m.ID] = t.earns[m.ID].add(used[m.ID], on)
		}
	}
}

// earned is what processes got in a turn by their earnings: those that were on, and servers. One that has none yet
// got what requests left.
func (p *planner) earned(moving []member, took time.Duration) map[string]time.Duration {
	t, all, left := &p.state.turn, map[string]time.Duration{}, 1.0
	for _, m := range p.tops {
		part, _ := t.earns[m.ID].of()
		all[m.ID] = time.Duration(part * float64(took))
		left -= part
	}
	for _, m := range moving {
		part, known := t.earns[m.ID].of()
		if !known {
			part = max(0, left)
		}
		if all[m.ID] = 0; slices.Contains(t.on, m.ID) {
			all[m.ID] = time.Duration(part * float64(took))
		}
	}
	return all
}

func sum(all map[string]time.Duration) (total time.Duration) {
	for _, d := range all {
		total += d
	}
	return total
}

// gained is what each process got since then, and whether that covers all that compute.
func (p *planner) gained(since map[string]time.Duration) (all map[string]time.Duration, whole bool) {
	all, whole = map[string]time.Duration{}, true
	for _, o := range p.in.Tenants {
		before, ok := since[o.ID]
		if whole = whole && (ok && o.Measured || o.Wants == No); ok {
			all[o.ID] = o.Got - before
		}
	}
	return all, whole
}
