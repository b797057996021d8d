package ladder

import (
	"cmp"
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
	// gappyFor is how long steadiness is not tried again with a server that left the GPU idle, by the
	// driver's samples.
	gappyFor = time.Minute
	// steadyFor is how long after its gaps were too short a server's are looked at again, unless it uses
	// half as much before: that makes its steps slower for a second or two.
	steadyFor = 5 * time.Minute
	// usefulGap is how long a process must stay on the GPU in a gap for this to be worth the switches
	// before and after.
	usefulGap = 2 * SwitchCost
	// thrashing is the part of the time that switches must take to matter.
	thrashing = 0.05
	// reading is the least time for which context switches are read.
	reading = 100 * time.Millisecond
	// settled is how long a plan's calls take as a rule, until the GPU does as they say.
	settled = 50 * time.Millisecond
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
// Therefore the others are off, except for visits. The context switches tell how long others stay on in
// its gaps. Where they are not read, whoever leaves a fifth of the GPU idle by the driver's samples
// has others beside it.
func (p *planner) steady() bool {
	l, now, found, short := &p.state.load, p.in.Now, false, p.short()
	for _, m := range p.tops {
		s, is := l.steady[m.ID]
		use, measured := l.use[m.ID]
		if !p.goesOn(m) || !measured || len(p.foreign) > 0 {
			delete(l.steady, m.ID)
			continue
		}
		p.unbroken = p.unbroken || use >= unbrokenUse && now.Sub(m.Job.Start.Time) > window
		since := now.Sub(s.since)
		switch {
		case is && s.exact && (since >= steadyFor || use < s.use/2):
			delete(l.steady, m.ID)
			continue
		case is && !s.exact && since > steadyKnown && use < steadyUse*(1-p.sure()):
			delete(l.steady, m.ID)
			l.gappy[m.ID] = now.Add(gappyFor)
			continue
		case is && s.exact:
			if s.use == 0 && since > steadyKnown {
				s.use = use
				l.steady[m.ID] = s
			}
			p.wake(s.since.Add(steadyFor))
		case is:
		case !m.Exact && now.Before(l.gappy[m.ID]):
			p.wake(l.gappy[m.ID])
			continue
		case use < steadyTry || m.Exact && !short:
			continue
		default:
			l.steady[m.ID] = steadiness{since: now, exact: m.Exact}
		}
		found = true
	}
	return found
}

// goesOn reports whether a server has computed without a break for so long that it may be steady.
func (p *planner) goesOn(m member) bool {
	return m.HasTask && p.in.Now.Sub(m.Job.Start.Time) > max(m.Deadline, steadyAfter)
}

// short reports whether the gaps between the servers' kernels are too short to be useful: by the context
// switches since the queue had nothing else, it switches a lot, and nobody stays for long.
func (p *planner) short() bool {
	s, since := p.in.Switches, p.state.load.since
	if since.IsZero() || s.From.Add(s.For).Before(since.Add(settled+reading)) || !p.switchy() {
		return false
	}
	stay := time.Duration(0)
	for _, m := range p.queue {
		stay = max(stay, m.Stay)
	}
	return stay > 0 && stay < usefulGap
}

// yields reports whether servers without a break give the GPU away again and again before their slices
// are over: shorter ones would give the others no more, and visits give them their parts. The slices are those
// of the time whose switches were read.
func (p *planner) yields() bool {
	then := p.sizesThen()
	keeps := func(m member) bool { return m.Stay > then[m.ID]/2 }
	return p.switchy() && p.visitable() && !slices.ContainsFunc(p.tops, keeps)
}

// resting reports whether no process of the queue has come onto the GPU beside a server without a break
// in the time whose switches were read, and visits can give them their parts once they do. Where their parts
// are so small that the server's slices are longer than that time, nobody need have come who wants to.
func (p *planner) resting() bool {
	came := func(m member) bool { return !m.Exact || m.Stay > 0 }
	return p.sure()*p.in.Switches.For.Seconds() > DefaultSlice.Seconds() && !p.in.Switches.From.IsZero() && p.visitable() && !slices.ContainsFunc(p.queue, came)
}

// visitable reports whether there is a server without a break, and visits can give all of the queue
// their parts.
func (p *planner) visitable() bool {
	_, _, possible := p.visits(p.queue)
	return possible && slices.ContainsFunc(p.tops, p.goesOn)
}

// switchy reports whether switches take so much of the time that they matter.
func (p *planner) switchy() bool { return p.in.Switches.Rate*SwitchCost.Seconds() >= thrashing }

// visits returns how long and how frequent visits of these processes are; false if they are
// impossible. Visits are as frequent as the assured parts of the queue require.
func (p *planner) visits(wanting []member) (length, every time.Duration, possible bool) {
	sure := p.sure()
	every = time.Duration(4 / p.rate() * float64(time.Second)) // two calls per visit: half of the allowed rate
	if sure <= 0 || len(p.tops) == 0 || len(wanting) == 0 {
		return 0, 0, false
	}
	most := min(visitMost, p.tops[0].Deadline/2)
	// Each has its visit in time.
	every = max(every, min(time.Duration(float64(most)/sure), inTime/time.Duration(len(wanting))))
	if n := together(every, len(wanting), inTime); n > 1 { // as few calls as will do
		every = inTime * n / time.Duration(len(wanting))
	}
	length = max(time.Duration(sure*float64(every)), 2*SwitchCost).Round(time.Microsecond)
	if length > most {
		return 0, 0, false
	}
	for _, m := range wanting {
		if m.KeepOn != "" || m.place < policy.Last {
			return 0, 0, false
		}
	}
	return length, every, true
}

// together is how many of n visit at a time, for each to have a visit in time.
func together(every time.Duration, n int, inTime time.Duration) time.Duration {
	return (time.Duration(n)*every + inTime - 1) / inTime
}

// visit adds the processes that are on now beside servers that compute without a break, and returns
// the slice of each; false if visits are impossible. Visitors have the GPU for the whole visit, so that
// few steps of the servers wait.
func (p *planner) visit(wanting []member, on map[string]bool) (slice time.Duration, possible bool) {
	length, every, possible := p.visits(wanting)
	if !possible {
		return 0, false
	}
	t, now := &p.state.turn, p.in.Now
	atOnce := together(every, len(wanting), inTime)
	t.keep(wanting, p.tops)
	p.look(wanting)
	if !t.visits { // who was on in a turn, or in a gap, is no visitor
		t.on, t.until = nil, time.Time{}
	}
	if t.visits = true; !now.Before(t.until) || len(t.on) > 0 && !slices.ContainsFunc(t.on, func(id string) bool { return has(wanting, id) }) {
		if len(t.on) == 0 {
			t.on, t.until = p.visitors(wanting, every, int(atOnce)), now.Add(length+arrival)
		} else {
			t.on, t.until = nil, now.Add(every-length-arrival)
		}
	}
	t.mark(wanting, on, now)
	p.wake(t.until)
	return max(length/atOnce, SwitchCost).Round(time.Microsecond), true
}

// look notes what each process made of its visits, where context switches are read.
func (p *planner) look(wanting []member) {
	used, fresh := p.read()
	if !fresh {
		return
	}
	for _, m := range wanting {
		if on, _ := during(p.state.turn.past, m.ID, p.in.Switches.From, p.in.Switches.to()); on > 0 {
			p.state.turn.worth[m.ID] = p.state.turn.worth[m.ID].add(used[m.ID], on, worthOf)
		}
	}
}

// leastWorth is how much of its visits must have been read.
const leastWorth = 2 * time.Millisecond

// idles reports whether a process made nothing of its visits.
func (p *planner) idles(m member) bool {
	visits := p.state.turn.worth[m.ID]
	worth, known := visits.of()
	known = known && visits.on >= leastWorth
	if !p.exact([]member{m}) {
		_, before := p.state.turn.own[m.ID]
		use, measured := p.state.load.use[m.ID]
		worth, known = use/m.part, before && measured
	}
	return known && worth <= nothing
}

// visitors are the processes whose last visit is longest ago, for their part: of two, one with a part that is
// five times as large has five visits to the other's one. Who would be off for too long comes first. One that made
// nothing of its visits has the next one with another.
func (p *planner) visitors(wanting []member, every time.Duration, atOnce int) (ids []string) {
	t, now := &p.state.turn, p.in.Now
	overdue := func(m member) int {
		if since, off := t.off[m.ID]; off && now.Sub(since) > inTime-every {
			return 1
		}
		return 0
	}
	waited := func(m member) float64 { return m.part * now.Sub(t.own[m.ID]).Seconds() }
	queue := slices.SortedStableFunc(slices.Values(wanting), func(a, b member) int {
		return cmp.Or(cmp.Compare(overdue(b), overdue(a)), cmp.Compare(waited(b), waited(a)))
	})
	left := atOnce
	for _, m := range queue {
		if left == 0 {
			break
		}
		if !p.idles(m) {
			left--
		}
		ids, t.own[m.ID] = append(ids, m.ID), now
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
