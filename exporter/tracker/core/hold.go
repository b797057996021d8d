package core

import "time"

// turnsEvery bounds how often a task that goes off the GPU or on again is stored and wakes
// the readers of snapshots. Tasks that take turns may do so many times a second. Snapshots
// show the changes in between. The last one is stored and wakes readers when the time is over.
const turnsEvery = time.Second

// Off takes the processes whose channels were off the GPU at the time at. off has the start
// of each, since boot, by PID.
func (m *Core) Off(off map[int]time.Duration, at time.Time) {
	m.off = off
	for _, p := range m.processes {
		is := m.isOff(p)
		if is == p.off {
			continue
		}
		p.off = is
		if m.enter(p, at) {
			p.open.turned, m.turned = true, true
			m.tellTurn(p, at)
		}
	}
}

// tellTurn stores that the task of p went off the GPU or on again, and wakes readers, unless
// it did so a moment ago.
func (m *Core) tellTurn(p *process, now time.Time) {
	if o := p.open; o != nil && o.turned && now.Sub(o.turnAt) >= turnsEvery {
		o.turned, o.turnAt = false, now
		m.save(p)
		m.changed = true
	}
}

func (m *Core) isOff(p *process) bool {
	started, off := m.off[p.PID]
	return off && started == p.Started
}
