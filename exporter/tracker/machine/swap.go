package machine

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// swapGrace is how long after a swap a process may take to be listed again.
const swapGrace = 2 * time.Second

// Swaps takes which processes are on notice as being, or as being brought, off the GPU: the
// ids of their containers by PID. It comes before the reading that may not list
// them any more.
func (m *Machine) Swaps(off map[int]string, now time.Time) {
	for _, p := range m.processes {
		id, noticed := off[p.PID]
		noticed = noticed && id == p.Container
		if noticed {
			p.noticedAt = now
		}
		p.noticed = noticed
	}
}

// swapped reports whether a process that the device does not list was checkpointed, or
// was just restored: it has not ended.
func (p *process) swapped(now time.Time) bool {
	if p.open == nil || len(p.on) > 0 || len(p.open.used) == 0 {
		return false
	}
	return p.noticed || p.open.State == task.Swapped && now.Sub(p.noticedAt) < swapGrace
}
