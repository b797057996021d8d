package core

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// swapGrace is how long the device may take to list a process again after it was swapped in.
const swapGrace = 2 * time.Second

// Swaps takes the processes that have a notice: they are swapped, or are being swapped out or
// in. off has the ids of their containers by PID. Call it before the reading that may not
// list them any more.
func (m *Core) Swaps(off map[int]string, now time.Time) {
	for _, p := range m.processes {
		id, noticed := off[p.PID]
		noticed = noticed && id == p.Container
		if noticed {
			p.noticedAt = now
		}
		p.noticed = noticed
	}
}

// swapped reports whether a process that the device does not list is swapped, or was restored
// a moment ago. Then it has not ended.
func (p *process) swapped(now time.Time) bool {
	if p.open == nil || len(p.on) > 0 || len(p.open.used) == 0 {
		return false
	}
	return p.noticed || p.open.State == task.Swapped && now.Sub(p.noticedAt) < swapGrace
}
