package core

import "time"

// turnsEvery bounds how often a task that goes off the GPU or on again is stored and wakes
// the readers of snapshots. Tasks that take turns may do so many times a second. Changes in
// between are in the next snapshot.
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
		switch {
		case !m.enter(p, at):
		case at.Sub(p.open.turnAt) < turnsEvery:
			m.measured = true
		default:
			p.open.turnAt = at
			m.save(p)
			m.changed = true
		}
	}
}

func (m *Core) isOff(p *process) bool {
	started, off := m.off[p.PID]
	return off && started == p.Started
}
