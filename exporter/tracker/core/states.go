package core

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// updateState sets the state to swapped, paused, held or running. Paused comes before held: a
// frozen container does not show whether its process is also stopped, and is not on the GPU
// either.
func (m *Core) updateState(p *process, at time.Time) {
	if m.enter(p, at) {
		m.save(p)
		m.changed = true
	}
}

// enter sets the state, and reports whether it changed.
func (m *Core) enter(p *process, at time.Time) bool {
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
	// Swapped comes before paused: a swapped container is frozen too.
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

// stay adds the time in the present state, until at, to the sum of that state.
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
