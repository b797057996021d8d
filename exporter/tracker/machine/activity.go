package machine

import (
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
)

// youngFor is how long after a task began, or changed its state, it is likely to
// change it again soon: who comes is often paused, and those before it let go.
const youngFor = 10 * time.Second

// Look returns the processes with an unfinished task of which it is due to see
// whether they are stopped: those that are, or that are young, at every call, the
// others once in calm. It notes that they are looked at now.
func (m *Machine) ToInspect(now time.Time, calm time.Duration) []sensor.Process {
	var due []sensor.Process
	for _, p := range m.processes {
		if p.open != nil && (p.restless(now) || now.Sub(p.inspectedAt) >= calm) {
			p.inspectedAt = now
			due = append(due, p.Process)
		}
	}
	return due
}

// Restless reports whether Look finds a process that it returns at every call.
func (m *Machine) Restless(now time.Time) bool {
	for _, p := range m.processes {
		if p.open != nil && p.restless(now) {
			return true
		}
	}
	return false
}

func (p *process) restless(now time.Time) bool {
	return p.stopped || now.Sub(p.open.StateSince) < youngFor
}

// Unfinished counts the unfinished tasks.
func (m *Machine) Unfinished() int {
	n := 0
	for _, p := range m.processes {
		if p.open != nil {
			n++
		}
	}
	return n
}

// Activity says what may happen soon; the tracker chooses its polling by it.
type Activity struct {
	DeviceUp   bool
	Sensor     task.Source
	Unfinished int
	// Waiting counts those of them that are held or paused.
	Waiting int
	// Placeless counts unfinished tasks that the device has not listed yet.
	Placeless int
	// Candidates counts processes that touched CUDA and hold no context yet.
	Candidates int
	// MayStart: a running container may use a GPU.
	MayStart bool
	// UnknownContainers counts GPU processes whose container the engine has not
	// told of yet: a reason to list again. It does so for UnknownLimit only: the
	// container may be another engine's, of which this one never tells.
	UnknownContainers int
}

// Activity sums up the present state.
func (m *Machine) Activity() Activity {
	a := Activity{DeviceUp: m.health.DeviceUp, Sensor: m.health.Sensor}
	for _, p := range m.processes {
		switch {
		case p.open != nil:
			a.Unfinished++
			if p.open.State != task.Running {
				a.Waiting++
			}
			if !p.open.listed {
				a.Placeless++
			}
		case p.gone == nil && p.touched():
			a.Candidates++
		}
		if m.stranger(p) && !p.foreign {
			a.UnknownContainers++
		}
	}
	for _, b := range m.containers {
		if b.spec.Managed || len(b.GPUs) > 0 || b.worked {
			a.MayStart = true
			break
		}
	}
	return a
}

// stranger: it uses CUDA in a container that the engine has not told of.
func (m *Machine) stranger(p *process) bool {
	return p.Container != "" && p.touched() && m.container(p.Container) == nil
}
