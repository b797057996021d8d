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
	var all map[string]time.Duration
	whole, exact := true, p.exact(moving)
	if exact {
		all = p.earned(moving, took)
	} else {
		all, whole = p.gained(t.got)
	}
	useful := took
	if whole {
		useful = min(sum(all), took)
	}
	t.useful = min(max(float64(useful)/float64(took), 0.5), 1)
	for _, m := range moving {
		if got, ok := all[m.ID]; ok {
			most := time.Duration(3 * m.part * float64(MaxOff))
			t.owed[m.ID] = min(max(t.owed[m.ID]+time.Duration(m.part*float64(useful))-got, 0), most)
		}
	}
	if whole && !exact && p.in.Now.Sub(t.since) >= stale {
		t.tasting.add(t.past, t.began, p.in.Now, moving, all)
	}
}

// earnings are what a process used of the time that it was on, in the last readings of context switches. Less
// than a tenth of a second may have been read, so what it got since is not known from its use alone.
type earnings struct{ used, on time.Duration }

// earningsOf is the time that earnings of turns are of, at most; worthOf is that of visits.
const (
	earningsOf = 500 * time.Millisecond
	worthOf    = 20 * time.Millisecond
)

// add adds what was used in some time; what is older than most counts no more.
func (e earnings) add(used, on, most time.Duration) earnings {
	if e.used, e.on = e.used+used, e.on+on; e.on > most {
		e.used = time.Duration(float64(e.used) * float64(most) / float64(e.on))
		e.on = most
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
		t.earns[m.ID] = t.earns[m.ID].add(used[m.ID], s.For, earningsOf)
	}
	for _, m := range moving {
		if on, _ := during(t.past, m.ID, s.From, s.to()); on > 0 {
			t.earns[m.ID] = t.earns[m.ID].add(used[m.ID], on, earningsOf)
		}
	}
}

// earned is what processes got in a turn by their earnings: those that were on, and servers. What these left is
// that of those that have none yet. Who takes no turns got what the last reading says.
func (p *planner) earned(moving []member, took time.Duration) map[string]time.Duration {
	t, all, left, fresh := &p.state.turn, map[string]time.Duration{}, 1.0, 0
	of := func(part float64) time.Duration { return time.Duration(part * float64(took)) }
	for _, o := range p.in.Tenants {
		part := o.Used
		switch e, known := t.earns[o.ID].of(); {
		case has(p.tops, o.ID):
			part = e
		case !has(moving, o.ID):
		case !slices.Contains(t.on, o.ID):
			part = 0
		case known:
			part = e
		default:
			part = 0
			fresh++
		}
		all[o.ID] = of(part)
		left -= part
	}
	for _, id := range t.on {
		if _, known := t.earns[id].of(); !known && has(moving, id) {
			all[id] = of(max(0, left) / float64(fresh))
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
