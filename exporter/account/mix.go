package account

import "maps"

// The driver takes a sample every 0.2 s, and a sample names one process, whoever computed at that moment
// (measured on an H200, driver 580). So the shares of one second are of five draws: two
// programs with half of the card each come out as anything from 0 and 1 to 1 and 0. Seconds add up,
// and their errors cancel out. A weighted division of each second's energy by them does not: it
// favours who draws less. So energy is divided by the mean shares since who computes
// last changed.
const (
	samplesPerSecond = 5
	window           = 3.0 // s: readings that are compared with those before, to see a change
	longestMix       = 60  // s: how much of the past counts
	changed          = 9   // the square of a change's deviation, in standard deviations
)

// reading is who computed how long, and what the card drew beyond its idle power.
type reading struct {
	times   map[string]float64 // s, by container
	seconds float64            // that passed
	joules  float64
}

// times are sums over readings.
type times struct {
	of      map[string]float64 // s, by container
	seconds float64            // that passed
	joules  float64
}

func (t *times) add(r reading) {
	if t.of == nil {
		t.of = map[string]float64{}
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

// take adds a reading. If who computes has changed, it begins anew and returns what was before.
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
	m.before.seconds = longestMix
}

// differ reports whether a container's share of the later readings is another than before, by more than the
// draws explain: a test of two proportions.
func differ(before, later times) bool {
	n1, n2 := before.seconds*samplesPerSecond, later.seconds*samplesPerSecond
	for _, ids := range []map[string]float64{before.of, later.of} {
		for id := range ids {
			d := later.share(id) - before.share(id)
			// One sample more on either side, so that a share of 0 or 1 is not taken as certain.
			p := (before.share(id)*n1 + later.share(id)*n2 + 1) / (n1 + n2 + 2)
			if d*d > changed*p*(1-p)*(1/n1+1/n2) {
				return true
			}
		}
	}
	return false
}

// shares returns the part of the time of those that compute, 0–1. It is empty while nobody does.
func (m *mix) shares() map[string]float64 {
	if m.with(times{}).sum() == 0 {
		return nil
	}
	all := m.with(m.before)
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
