package ladder

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

const (
	// steadyAfter is the least time without a break after which a server counts as steady: a decode
	// loop makes one token after another.
	steadyAfter = 50 * time.Millisecond
	// steadyTry is the least part of the GPU's time that such a server takes beside others.
	steadyTry = 0.2
	// steadyUse is the least part that it takes of what visits leave. Beside others the switch after
	// each kernel hides this.
	steadyUse = 0.8
	// steadyKnown is how long a server must be alone until the device's utilisation, which lags,
	// shows its use.
	steadyKnown = 4 * time.Second
	// exactKnown is that where use is exact: until a window that began while it was alone is over.
	exactKnown = 3 * window
	// gappyFor is how long steadiness is not tried again with a server that left the GPU idle.
	gappyFor = time.Minute
	// worth is by how much more of the GPU's time must be used while the others are on, for the
	// gaps of the server to be useful: their first microseconds there are slow, and the trace counts
	// the saving of a context as its own.
	worth = 0.1
	// unbrokenUse is the least part that a server takes, with others on in its gaps, for these to be
	// too short for a second one.
	unbrokenUse = 0.3
	// visitMost is the longest visit: a request waits for it, and longer visits save no more calls.
	visitMost = 10 * time.Millisecond
	// arrival is how long it takes until a visitor computes: the rest of a token, and a switch. Who
	// comes later has a shorter visit; who stays on longer takes a slice after the next token, too.
	arrival = DefaultSlice/4 + SwitchCost
)

// steady reports whether requests leave no useful gaps: a server has computed without a break for
// longer than its deadline, and takes a good part of the GPU beside others. Between two of its
// kernels it leaves the GPU for a fraction of a millisecond. Any process that is on takes a slice
// there, plus a switch before and after, so each step of the server takes several times as long.
// Therefore the others are off, except for visits. If the GPU was of more use with them, they are on
// again. Exact use tells that: a window with them comes before, and all that both used in it is
// compared. By the driver's samples whoever leaves a fifth of the GPU idle has others beside it.
func (p *planner) steady() bool {
	l, now, found := &p.state.load, p.in.Now, false
	useful, exact := p.useful()
	for _, m := range p.tops {
		since, is := l.steady[m.ID]
		switch use, measured := l.use[m.ID]; {
		case !m.HasTask, now.Sub(m.Job.Start.Time) <= max(m.Deadline, steadyAfter), !measured, p.foreign > 0:
			delete(l.steady, m.ID)
			continue
		case now.Before(l.gappy[m.ID]):
			p.wake(l.gappy[m.ID])
			p.unbroken = p.unbroken || use >= unbrokenUse
			continue
		case is && exact && now.Sub(since) > exactKnown && l.beside > useful+worth,
			is && !exact && now.Sub(since) > steadyKnown && use < steadyUse*(1-p.sure()):
			delete(l.steady, m.ID)
			l.gappy[m.ID] = now.Add(gappyFor)
			p.unbroken = true
			continue
		case !is && (use < steadyTry || exact && !l.whole):
			continue
		case !is:
			l.steady[m.ID], l.beside = now, useful
		}
		found = true
	}
	return found
}

// useful is the part of the GPU's time that servers and queue used in the window before, and whether
// that is exact.
func (p *planner) useful() (part float64, exact bool) {
	all := slices.Concat(p.tops, p.queue)
	part, measured := p.used(all)
	return part, measured && !slices.ContainsFunc(all, func(m member) bool { return !m.Exact })
}

// visit adds the processes that are on now beside servers that compute without a break, and returns
// the length of a visit; false if visits are impossible. A visitor has the GPU for its whole visit,
// so that few steps of the servers wait. Visits are as frequent as the assured parts of the queue
// require.
func (p *planner) visit(wanting []member, on map[string]bool) (length time.Duration, possible bool) {
	sure := p.sure()
	every := time.Duration(4 / p.rate() * float64(time.Second)) // two calls per visit: half of the allowed rate
	most := min(visitMost, p.tops[0].Deadline/2)
	if sure <= 0 {
		return 0, false
	}
	every = max(every, time.Duration(float64(most)/sure))
	length = time.Duration(sure * float64(every)).Round(time.Microsecond)
	if length > most || length < SwitchCost {
		return 0, false
	}
	for _, m := range wanting {
		if m.KeepOn != "" || p.in.Limits.NoOff || m.place < policy.Last {
			return 0, false
		}
	}
	t, now := &p.state.turn, p.in.Now
	t.keep(wanting)
	if t.visits = true; !now.Before(t.until) || len(t.on) > 0 && !slices.ContainsFunc(t.on, func(id string) bool { return has(wanting, id) }) {
		if len(t.on) == 0 {
			t.on, t.until = p.visitors(wanting, every), now.Add(length+arrival)
		} else {
			t.on, t.until = nil, now.Add(every-length-arrival)
		}
	}
	t.mark(wanting, on, now)
	p.wake(t.until)
	return length, true
}

// visitors are the processes whose last visit is longest ago: one, or as many as are needed to give
// each a visit in time.
func (p *planner) visitors(wanting []member, every time.Duration) (ids []string) {
	t := &p.state.turn
	atOnce := 1 + int(time.Duration(len(wanting))*every/(p.maxOff()*9/10))
	queue := t.queue(wanting)
	for _, m := range queue[:min(atOnce, len(queue))] {
		ids, t.own[m.ID] = append(ids, m.ID), p.in.Now
	}
	slices.Sort(ids)
	return ids
}

// whyAway says why a process is off between visits.
func (p *planner) whyAway() string {
	var busy []string
	for _, m := range p.tops {
		if m.HasTask {
			busy = append(busy, m.Name)
		}
	}
	return fmt.Sprintf("off the GPU between visits: %s computes without a break and comes first; those in the queue are sure of %s", strings.Join(busy, ", "), percent(p.sure()))
}
