package account

import "maps"

// The driver takes a sample every 0.2 s, and a sample names one process, whoever computed at that moment
// (measured on an H200, driver 580). So the shares of one second are of five samples: two programs
// with half of the card each come out as anything from 0 and 1 to 1 and 0. And the samples are not
// independent: they beat with the time slices, so that the mean of minutes was off by as much as 0.14.
// Dividing each second's energy by such shares favours who draws less. So energy is
// divided by the mean shares since the mix last changed.
const (
	window      = 3.0  // s: readings that are compared with those before, to see a change
	longestMix  = 60   // s: how much of the past counts
	shareError  = 0.15 // of a share of a half, however long the mix lasts
	exactError  = 0.01 // of one that the trace of context switches tells
	otherShare  = 0.35 // a change of a share that is another mix
	leavesShare = 0.2  // a share of which at least one sample falls into the window
)

// reading is who computed how long, and what the card drew beyond its idle power.
type reading struct {
	times   map[string]float64 // s, by container
	seconds float64            // that passed
	joules  float64
	exact   bool // times are what containers had, not what samples say
}

// times are sums over readings.
type times struct {
	of      map[string]float64 // s, by container
	seconds float64            // that passed
	joules  float64
	sampled float64 // s, of seconds: in readings that are not exact
}

func (t *times) add(r reading) {
	if t.of == nil {
		t.of = map[string]float64{}
	}
	if !r.exact {
		t.sampled += r.seconds
	}
	for id, s := range r.times {
		t.of[id] += s
	}
	t.seconds += r.seconds
	t.joules += r.joules
}

// share returns a container's part of the time, 0–1.
func (t times) share(id string) float64 {
	if t.seconds == 0 {
		return 0
	}
	return t.of[id] / t.seconds
}

// shareError is the error of a share of a half.
func (t times) shareError() float64 {
	if t.seconds == 0 {
		return shareError
	}
	return exactError + (shareError-exactError)*t.sampled/t.seconds
}

// sum returns how long the containers computed in all, s.
func (t times) sum() (s float64) {
	for _, of := range t.of {
		s += of
	}
	return s
}

// mix is how a card has been divided since that last changed.
type mix struct {
	before times     // the readings that are older than the window: the mix was the same after them
	recent []reading // those in the window
}

// take adds a reading. If the mix has changed, it begins anew and returns what was before.
func (m *mix) take(r reading) *times {
	m.recent = append(m.recent, r)
	recent := m.with(times{})
	if m.before.seconds > 0 && differ(m.before, recent) {
		before := m.before
		*m = mix{recent: []reading{r}}
		return &before
	}
	if first := m.recent[0]; recent.seconds-first.seconds >= window {
		m.recent = m.recent[1:]
		m.before.add(first)
		m.age()
	}
	return nil
}

// with returns t and what the window holds.
func (m *mix) with(t times) times {
	t.of = maps.Clone(t.of)
	for _, r := range m.recent {
		t.add(r)
	}
	return t
}

// age lets the past count as no more than the longest mix.
func (m *mix) age() {
	if m.before.seconds <= longestMix {
		return
	}
	scale := longestMix / m.before.seconds
	for id := range m.before.of {
		m.before.of[id] *= scale
	}
	m.before.joules *= scale
	m.before.sampled *= scale
	m.before.seconds = longestMix
}

// differ reports whether the later readings are of another mix: a container has come, has gone, or has a very
// different share.
func differ(before, later times) bool {
	for id := range later.of {
		if before.of[id] == 0 && later.of[id] > 0 || later.share(id)-before.share(id) > otherShare {
			return true
		}
	}
	for id := range before.of {
		if later.of[id] == 0 && before.share(id) > leavesShare || before.share(id)-later.share(id) > otherShare {
			return true
		}
	}
	return false
}

// shares returns the part of the time of those that compute, 0–1. It is empty while nobody does. Exact ones
// are of the last reading alone.
func (m *mix) shares() map[string]float64 {
	if m.with(times{}).sum() == 0 {
		return nil
	}
	all := times{}
	if last := m.recent[len(m.recent)-1]; last.exact {
		all.add(last)
	}
	if all.sum() == 0 {
		all = m.with(m.before)
	}
	shares := make(map[string]float64, len(all.of))
	for id := range all.of {
		shares[id] = all.share(id)
	}
	return shares
}

func (m *mix) forget(id string) {
	delete(m.before.of, id)
	for _, r := range m.recent {
		delete(r.times, id)
	}
}
