package ladder

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

const (
	// steadyAfter is for how long a server computes without a break, at least, until it counts
	// as one that goes on: a decode loop makes one token after another.
	steadyAfter = 50 * time.Millisecond
	// steadyTry is the part of the GPU's time that such a server takes beside others, at least.
	steadyTry = 0.2
	// steadyUse is the part that it takes of what visits leave, at least: a switch after each
	// kernel hides that as long as others are on beside it.
	steadyUse = 0.8
	// steadyKnown is after how long alone the device's utilisation, which lags, shows it.
	steadyKnown = 4 * time.Second
	// gappyFor is for how long it is not tried again with one that left the GPU idle.
	gappyFor = time.Minute
	// visitMost is how long a visit is at most: a request waits for it, and a longer one
	// saves no more calls.
	visitMost = 10 * time.Millisecond
	// arrival is how long it takes until a visitor computes, at most: what is left of the
	// server's slice, and a switch.
	arrival = DefaultSlice + SwitchCost
)

// steady reports whether requests leave no gaps worth having: a server has computed for
// longer than its deadline without a break, and takes a good part of the GPU beside others. Between two of its
// kernels it leaves the GPU for some microseconds; whoever else is on takes a slice there,
// and a switch before and after, so that each of its steps takes several times as long. So
// the others are off, but for visits. Where that leaves the GPU idle they are on again.
func (p *planner) steady() bool {
	l, now, found := &p.state.load, p.in.Now, false
	for _, m := range p.tops {
		since, is := l.steady[m.ID]
		switch use, measured := l.use[m.ID]; {
		case !m.HasTask, now.Sub(m.Job.Start.Time) <= max(m.Deadline, steadyAfter), !measured, p.foreign > 0:
			delete(l.steady, m.ID)
			continue
		case now.Before(l.gappy[m.ID]):
			p.wake(l.gappy[m.ID])
			continue
		case is && now.Sub(since) > steadyKnown && use < steadyUse*(1-p.sure()):
			delete(l.steady, m.ID)
			l.gappy[m.ID] = now.Add(gappyFor)
			continue
		case !is && use < steadyTry:
			continue
		case !is:
			l.steady[m.ID] = now
		}
		found = true
	}
	return found
}

// visit adds who of those that want the GPU is on now beside servers that compute without a
// break, and says how long a visit is; false: that is not possible. A visitor has the GPU for
// the whole of it, so that few steps of the servers wait, and visits come as often as all of
// those in the queue are sure of together.
func (p *planner) visit(wanting []member, on map[string]bool) (length time.Duration, possible bool) {
	sure := p.sure()
	every := time.Duration(4 / p.rate() * float64(time.Second)) // two calls a visit: half of what is allowed
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

// visitors are those whose last visit is longest ago: one, or as many as it takes until
// everybody has one in time.
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

// whyAway says why somebody is off between visits.
func (p *planner) whyAway() string {
	var busy []string
	for _, m := range p.tops {
		if m.HasTask {
			busy = append(busy, m.Name)
		}
	}
	return fmt.Sprintf("off the GPU between visits: %s computes without a break and comes first; those in the queue are sure of %s", strings.Join(busy, ", "), percent(p.sure()))
}
