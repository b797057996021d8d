package machine

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// updateState makes swapped, paused, held or running of what is known. Paused covers
// held: a container that is frozen hides whether its process is also stopped, and is
// not on the GPU either.
func (m *Machine) updateState(p *process, at time.Time) {
	if m.enter(p, at) {
		m.save(p)
		m.changed = true
	}
}

// enter changes the state, and reports whether it was another one.
func (m *Machine) enter(p *process, at time.Time) bool {
	if p.open == nil {
		return false
	}
	want := task.Running
	if p.stopped || p.off {
		want = task.Held
	}
	switch b := m.containers[p.open.ContainerID]; {
	case b != nil && b.Paused:
		want, at = task.Paused, b.pausedAt
	case b == nil && p.open.State == task.Paused:
		return false // after a restart, before the engine has answered
	}
	// Swapped covers paused: what is off the GPU is frozen besides.
	if p.swapped(at) {
		want = task.Swapped
	}
	if p.open.State == want {
		return false
	}
	at = latest(at, p.open.StateSince)
	p.open.stay(at)
	p.open.State, p.open.StateSince = want, at
	p.open.checked = at
	return true
}

// stay adds the stay in the present state, until at, to its sum.
func (o *openTask) stay(at time.Time) {
	d := task.SecondsOf(max(0, at.Sub(o.StateSince)))
	switch o.State {
	case task.Held:
		o.HeldSeconds += d
	case task.Paused:
		o.PausedSeconds += d
	case task.Swapped:
		o.SwappedSeconds += d
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
