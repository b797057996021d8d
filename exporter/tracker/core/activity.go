package core

import (
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
)

// youngFor is how long a task is likely to change its state soon after it began or last
// changed it: a newcomer is often paused, and the tasks before it are released.
const youngFor = 10 * time.Second

// ToInspect returns the processes with an unfinished task that the caller must now check for
// state T (stopped by a signal). It returns stopped and young ones at every call, the others
// once in calm. It notes that they are inspected now.
func (m *Core) ToInspect(now time.Time, calm time.Duration) []sensor.Process {
	var due []sensor.Process
	for _, p := range m.processes {
		if p.open != nil && (p.restless(now) || now.Sub(p.inspectedAt) >= calm) {
			p.inspectedAt = now
			due = append(due, p.Process)
		}
	}
	return due
}

// Restless reports whether there is a process that ToInspect returns at every call.
func (m *Core) Restless(now time.Time) bool {
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
func (m *Core) Unfinished() int {
	n := 0
	for _, p := range m.processes {
		if p.open != nil {
			n++
		}
	}
	return n
}

// Activity says what may happen soon. The tracker chooses its polling interval by it.
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
	// UnknownContainers counts GPU processes whose container the engine has not reported yet:
	// a reason to list the containers again. It counts a process for unknownLimit only: the
	// container may be another engine's, which this engine never reports.
	UnknownContainers int
}

// Activity sums up the present state.
func (m *Core) Activity() Activity {
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

// stranger reports whether the process uses CUDA in a container that the engine has not
// reported.
func (m *Core) stranger(p *process) bool {
	return p.Container != "" && p.touched() && m.container(p.Container) == nil
}
