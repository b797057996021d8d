package machine

import "time"

// turnsEvery bounds for each task how often its going off the GPU and on again is made
// durable and wakes the readers of snapshots: where tasks take turns that may be many
// times a second. What comes in between is in the next snapshot.
const turnsEvery = time.Second

// Off takes which processes are off the GPU, by PID the time since boot at which each
// began, as it was seen at a moment.
func (m *Machine) Off(off map[int]time.Duration, at time.Time) {
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

func (m *Machine) isOff(p *process) bool {
	started, off := m.off[p.PID]
	return off && started == p.Started
}
