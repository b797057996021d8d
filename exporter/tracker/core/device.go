package core

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
)

// DeviceDown notes that the device as a whole did not answer, until now. No task ends for that: the
// lists last seen count.
func (m *Core) DeviceDown(reason string, now time.Time) {
	if m.health.DeviceUp || m.health.DeviceError != reason {
		m.health.DeviceUp, m.health.DeviceError = false, reason
		m.changed = true
	}
	m.findStale(now)
}

// Device takes a reading, which was complete at now. Its processes that still exist must have
// been met before.
func (m *Core) Device(r device.Reading, now time.Time) {
	m.takeHealth(r)
	m.takeGPUs(r.GPUs)
	m.takeLists(r.GPUs, now)
	for _, p := range m.processes {
		m.takeListing(p, now)
	}
	m.lastReading = now
	for _, g := range r.GPUs {
		if g.ProcessesErr == nil {
			m.listedAt[g.UUID] = now
		}
	}
	m.findStale(now)
}

// staleFor is how long memory and utilisation count while the list of their GPU cannot be read.
const staleFor = 2500 * time.Millisecond

// findStale marks what was listed too long ago, unless only the reading at now failed.
func (m *Core) findStale(now time.Time) {
	before := m.triedAt
	m.triedAt = now
	for _, p := range m.processes {
		for uuid, u := range p.on {
			if at := m.listedAt[uuid]; !u.stale && now.Sub(at) > staleFor && at.Before(before) {
				u.stale = true
				p.on[uuid] = u
				m.measured = true
			}
		}
	}
}

// Vanished returns the processes with an unfinished task that the device listed before, and
// does not list in this reading.
func (m *Core) Vanished(r device.Reading) []sensor.Process {
	listed, unread := map[int]bool{}, map[string]bool{}
	for _, g := range r.GPUs {
		unread[g.UUID] = g.ProcessesErr != nil
		for _, p := range g.Processes {
			listed[p.PID] = true
		}
	}
	var gone []sensor.Process
	for _, p := range m.processes {
		o := p.open
		if o == nil || listed[p.PID] || !o.listed && !o.restored {
			continue
		}
		if !slices.ContainsFunc(o.GPUs, func(uuid string) bool { return unread[uuid] }) {
			gone = append(gone, p.Process)
		}
	}
	return gone
}

// Vanishing notes that a process exits, and that it was first seen to at now. An event that
// says when it began to exit, or has exited, is on its way. Until then the device's list does
// not end its task.
func (m *Core) Vanishing(of sensor.Process, now time.Time) {
	if p := m.processes[of.Identity]; p != nil && p.vanishing.IsZero() {
		p.vanishing = now
	}
}

// readable reports whether the lists of all these GPUs were read.
func (m *Core) readable(gpus map[string]bool) bool {
	for uuid := range gpus {
		at := slices.IndexFunc(m.gpus, func(g device.GPU) bool { return g.UUID == uuid })
		if at < 0 || m.gpus[at].ProcessesErr != nil {
			return false
		}
	}
	return true
}

// hidden reports whether a process of the container may work on a GPU whose list could not be
// read. A GPU that does not answer at all does not count: a context call fails there.
func (m *Core) hidden(b *containerState) bool {
	return slices.ContainsFunc(m.gpus, func(g device.GPU) bool {
		return g.ProcessesErr != nil && g.MemoryTotal > 0 && (b == nil || !b.certain || slices.Contains(b.visible, g.UUID))
	})
}

func (m *Core) takeHealth(r device.Reading) {
	var errs []string
	for _, g := range r.GPUs {
		if g.ProcessesErr != nil {
			errs = append(errs, g.UUID+": "+g.ProcessesErr.Error())
		}
	}
	reason := strings.Join(errs, "; ")
	if !m.health.DeviceUp || m.health.DeviceError != reason {
		m.health.DeviceUp, m.health.DeviceError = true, reason
		m.changed = true
	}
}

// takeGPUs notes whether the GPUs themselves changed, or only measurements.
func (m *Core) takeGPUs(gpus []device.GPU) {
	same := len(gpus) == len(m.gpus)
	for i := 0; same && i < len(gpus); i++ {
		a, b := gpus[i], m.gpus[i]
		same = a.UUID == b.UUID && a.Index == b.Index && a.Parent == b.Parent && a.Driver == b.Driver &&
			a.MemoryTotal == b.MemoryTotal
		if a.MemoryUsed != b.MemoryUsed || !sameFloat(a.Utilization, b.Utilization) {
			m.measured = true
		}
	}
	m.gpus = gpus
	if !same {
		m.changed = true
		m.resolveVisible()
	}
}

// takeLists brings every process's listing up to date. A GPU whose list could not be read, or
// that is missing from the reading, keeps its last list.
func (m *Core) takeLists(gpus []device.GPU, now time.Time) {
	unattributed := map[string]int{}
	counted := map[int]bool{}
	for _, g := range gpus {
		if g.ProcessesErr != nil {
			continue
		}
		listed := make(map[*process]bool, len(g.Processes))
		for _, proc := range g.Processes {
			if proc.MPS {
				m.cards.clients[g.UUID] = now
			}
			p := m.byPID[proc.PID]
			if reason := m.whyUnattributed(p); reason != "" && !counted[proc.PID] {
				counted[proc.PID] = true
				unattributed[reason]++
			}
			if p == nil {
				continue
			}
			listed[p] = true
			was, old := p.on[g.UUID]
			is := use{memory: proc.MemoryUsed, sm: m.cards.share(g.UUID, proc.PID, proc.SMUtilization, now), mps: proc.MPS}
			if !old || was.memory != is.memory || !sameFloat(was.sm, is.sm) {
				m.measured = true
			}
			if was.mps != is.mps {
				m.changed = true
			}
			p.on[g.UUID] = is
			p.listedAt = now
		}
		for _, p := range m.processes {
			if _, was := p.on[g.UUID]; was && !listed[p] {
				delete(p.on, g.UUID)
				m.measured = true
			}
		}
	}
	if !maps.Equal(m.unattributed, unattributed) {
		m.unattributed = unattributed
		m.changed = true
	}
}

func (m *Core) whyUnattributed(p *process) string {
	switch {
	case p == nil:
		return task.GoneProcess
	case p.MPSServer:
		return task.MPSServer
	case p.open != nil:
		return ""
	case p.Container == "":
		return task.HostProcess
	case m.containers[p.Container] == nil:
		return task.UnknownContainer
	default:
		return ""
	}
}

// takeListing begins, moves or ends the task of one process, as the device's lists say.
func (m *Core) takeListing(p *process, now time.Time) {
	if len(p.on) > 0 {
		p.vanishing = time.Time{}
		if p.seen == nil {
			mark := m.firstSight(p, now)
			p.seen = &mark
		}
		if p.open != nil {
			m.place(p)
			if p.open.State == task.Swapped {
				m.updateState(p, now)
			}
			return
		}
		m.begin(p, now)
		return
	}
	o := p.open
	switch {
	case o == nil:
		p.seen = nil
	case p.swapped(now):
		m.updateState(p, now)
	case now.Sub(p.vanishing) < eventLimit:
		// An event is about to say when it began to exit.
	case o.restored && !m.readable(o.used):
		// It may be on a list that could not be read.
	case o.restored:
		// It left the list while the exporter was away: nobody saw that end.
		if len(o.used) > 0 {
			m.end(p, task.Lost, task.Mark{Time: now, Source: task.SourceRestart,
				ErrorBound: task.SecondsOf(now.Sub(p.listedAt))})
			return
		}
		o.restored = false
	case o.listed && p.leaving != nil && now.Sub(p.leaving.Time) < eventLimit:
		// An event is about to say exactly when it left.
	case o.listed:
		m.end(p, task.Ended, p.leave(now))
		m.begin(p, now)
	default:
		m.waitForListing(p, now)
	}
}

// eventLimit is how long the end of a task waits for the event that says when it was.
const eventLimit = 2 * time.Second

// leave returns the end of the task of a process that the device no longer lists. If the
// process destroyed a context since it was last listed, that is when that call returned.
// Otherwise it is at the first reading without it, now, or up to one reading earlier.
func (p *process) leave(now time.Time) task.Mark {
	if !p.vanishing.IsZero() { // no event came
		now = p.vanishing
	}
	if p.left != nil && !p.left.Time.Before(p.listedAt) {
		return *p.left
	}
	return task.Mark{Time: now, Source: task.SourceDevice, ErrorBound: task.SecondsOf(now.Sub(p.listedAt))}
}

// firstSight is the start as the device alone shows it.
func (m *Core) firstSight(p *process, now time.Time) task.Mark {
	bound := 0.0
	for uuid := range p.on {
		since := math.Inf(1)
		if last, listed := m.listedAt[uuid]; listed {
			since = (now.Sub(last) + listLag).Seconds()
		}
		bound = max(bound, since)
	}
	if !p.Born.IsZero() {
		bound = min(bound, max(0, now.Sub(p.Born).Seconds()))
	}
	return task.Mark{Time: now, Source: task.SourceDevice, ErrorBound: task.Seconds(bound)}
}

// waitForListing gives a task that began with its context call time to appear in the device's
// list. Only time in which it could run, and in which the list would have shown it, counts.
func (m *Core) waitForListing(p *process, now time.Time) {
	o := p.open
	if o.State == task.Running && p.launch == nil && !m.hidden(m.container(o.ContainerID)) {
		o.waited += max(0, now.Sub(o.checked))
	}
	o.checked = now
	if o.waited > unlistedLimit {
		m.end(p, task.Ended, task.Mark{Time: now, Source: task.SourceDevice,
			ErrorBound: task.SecondsOf(now.Sub(o.Start.Time))})
	}
}

func sameFloat(a, b float64) bool { return a == b || (math.IsNaN(a) && math.IsNaN(b)) }
