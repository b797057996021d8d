package compute

import "time"

// keep is how far back a meter remembers: longer than any driver's sampling.
const keep = 5 * time.Second

// Meter remembers in which stretches of time something was busy.
type Meter struct {
	parts []part // in order of time, none overlapping
}

type part struct {
	from, to time.Time
	share    float64 // 0–1
}

// grain is how short a part may be: a drawn-out one of many slices stands for them.
const grain = 10 * time.Millisecond

// Add notes that share of the time from … to was busy. It must not begin before
// what was added last.
func (m *Meter) Add(from, to time.Time, share float64) {
	n := len(m.parts)
	switch {
	case n > 0 && m.parts[n-1].share == share && m.parts[n-1].to.Equal(from):
		m.parts[n-1].to = to
	case n > 0 && to.Sub(m.parts[n-1].from) <= grain:
		last := &m.parts[n-1]
		busy := last.share*float64(last.to.Sub(last.from)) + share*float64(to.Sub(from))
		last.to, last.share = to, busy/float64(to.Sub(last.from))
	default:
		m.parts = append(m.parts, part{from, to, share})
	}
	old := 0
	for m.parts[old].to.Before(to.Add(-keep)) {
		old++
	}
	m.parts = m.parts[old:]
}

// Share is the busy share, 0–1, of the time from … to.
func (m *Meter) Share(from, to time.Time) float64 {
	if !from.Before(to) {
		return 0
	}
	var busy float64
	for _, p := range m.parts {
		begin, end := p.from, p.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if begin.Before(end) {
			busy += p.share * float64(end.Sub(begin))
		}
	}
	return min(busy/float64(to.Sub(from)), 1)
}

// Last is the end of the last busy stretch, zero if there was none.
func (m *Meter) Last() time.Time {
	if len(m.parts) == 0 {
		return time.Time{}
	}
	return m.parts[len(m.parts)-1].to
}

// Utilization describes how a driver's reading lags behind the truth.
type Utilization struct {
	Period time.Duration // length of one sample
	Rise   time.Duration // from a kernel's begin until the reading is full; ≥ Period
	Fall   time.Duration // from the last kernel's end until the reading is 0; ≥ Rise
}

// floor is what a driver still reads in the tail after the last kernel.
const floor = 0.05

// Reading is what a driver would say at now of what m metered.
func (l Utilization) Reading(m *Meter, now time.Time) float64 {
	delay := max(l.Rise-l.Period, 0)
	share := m.Share(now.Add(-delay-l.Period), now.Add(-delay))
	if last := m.Last(); !last.IsZero() && now.Sub(last) < l.Fall && now.Sub(last) > 0 {
		share = max(share, floor)
	}
	return share
}

// Utilization is the driver's reading for the whole unit, 0–1.
func (u *Unit) Utilization(lag Utilization) float64 { return lag.Reading(&u.total, u.now) }

// OwnerUtilization is the driver's reading for one owner, 0–1.
func (u *Unit) OwnerUtilization(owner Owner, lag Utilization) float64 {
	if m := u.meter[owner]; m != nil {
		return lag.Reading(m, u.now)
	}
	return 0
}

func (u *Unit) meterOf(owner Owner) *Meter {
	m := u.meter[owner]
	if m == nil {
		m = &Meter{}
		u.meter[owner] = m
	}
	return m
}
