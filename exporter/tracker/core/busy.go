package core

import (
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
)

// byInterval reports whether the tasks of this container are busy intervals. Without a sensor
// that reports launches a task is the process, whatever the label says. Until the sensor is
// known the label counts, so that an idle server does not count as a task.
func (m *Core) byInterval(b *containerState) bool {
	return b.spec.Release == task.ReleaseBusy && (m.busyTracking || !m.sensorChosen)
}

// launched takes a launch after idle. It opens a busy interval, or keeps the present one open
// if it comes within the gap. Events of several threads come in no order, so only their times
// count.
func (m *Core) launched(p *process, mark task.Mark) {
	if p.open != nil && p.launch == nil && m.overtaken(p.open) {
		m.end(p, task.Lost, *p.open.lapse)
	}
	if p.open != nil && m.intervalOver(p, mark.Time) {
		m.end(p, task.Ended, *p.done)
	}
	if p.launch == nil {
		p.launch = &mark
	}
	p.launchedAt = latest(p.launchedAt, mark.Time)
}

// workDone takes the return of a call that had waited for the GPU.
func (m *Core) workDone(p *process, mark task.Mark) {
	if p.launch != nil && (p.done == nil || p.done.Time.Before(mark.Time)) {
		p.done = &mark
	}
}

// intervalOver reports whether the gap after an open busy interval is over. Events have the
// wall clock's time: an event in the future came before that clock was set back. The interval
// must not stay open until the clock has caught up.
func (m *Core) intervalOver(p *process, now time.Time) bool {
	if !m.rests(p) {
		return false
	}
	gap := now.Sub(p.done.Time)
	return gap >= m.opt.BusyGap || gap < -clockStep
}

// clockStep is more than an event's time is ever ahead of the wall clock, unless somebody set
// that clock.
const clockStep = time.Second

// rests reports whether the work of an open busy interval is done, as far as is known. A
// launch within the gap would continue the interval.
func (m *Core) rests(p *process) bool {
	b := m.container(p.open.ContainerID)
	return b != nil && m.byInterval(b) && p.launch != nil && p.done != nil && !p.launchedAt.After(p.done.Time)
}

// doubtIntervals forgets the launches before the present sensor, which starts to count at 0.
func (m *Core) doubtIntervals() {
	for _, p := range m.processes {
		if p.open == nil {
			continue
		}
		if b := m.container(p.open.ContainerID); b != nil && b.spec.Release == task.ReleaseBusy {
			p.launch, p.done, p.launchedAt = nil, nil, time.Time{}
			p.open.doubtful = true
		}
	}
}

// resumeLimit is how long an older busy interval waits after a restart of the exporter, or of
// its sensor, for a launch that shows that it goes on.
const resumeLimit = 2 * time.Second

// overtaken reports whether a busy interval from before a restart has ended, by all that is known: no
// interval of its process was as long as the exporter was away, nor had this one lasted longer before.
// Then the next launch is one of a later request.
func (m *Core) overtaken(o *openTask) bool {
	b := m.containers[o.ContainerID]
	if o.away == 0 || o.State != task.Running || b == nil || !m.byInterval(b) {
		return false
	}
	lasted := o.lapse.Time.Sub(o.Start.Time) - o.away // when it was last seen
	longest := time.Duration(0)
	for _, t := range m.history.tasks {
		if t.ContainerID == o.ContainerID && t.PID == o.PID {
			longest = max(longest, t.End.Time.Sub(t.Start.Time))
		}
	}
	return longest > 0 && longest < o.away && lasted <= longest
}

// loseBusy ends a busy interval from before a restart that sends no event. It ended while the
// exporter was away, or only waits for a long kernel. It is lost.
func (m *Core) loseBusy(p *process, now time.Time) {
	o := p.open
	if o == nil || o.lapse == nil || p.launch != nil || !m.busyTracking || p.unfollowed || now.Sub(o.lapse.Time) <= resumeLimit && !m.overtaken(o) {
		return
	}
	if b := m.containers[o.ContainerID]; b != nil && m.byInterval(b) {
		m.end(p, task.Lost, *o.lapse)
	}
}

// CloseBusy ends the busy intervals whose gap is over at now, at the time when their work was
// done. It returns when the next gap is over, unless a launch comes; zero: no interval waits
// for that.
func (m *Core) CloseBusy(now time.Time) (next time.Time) {
	for _, p := range m.processes {
		if p.open == nil || !m.rests(p) {
			continue
		}
		if m.intervalOver(p, now) {
			m.end(p, task.Ended, *p.done)
		} else if at := p.done.Time.Add(m.opt.BusyGap); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// BusyProcesses returns the processes whose launches the sensor should report.
func (m *Core) BusyProcesses() []sensor.Process {
	var all []sensor.Process
	for _, p := range m.byPID {
		if b := m.containers[p.Container]; b != nil && m.byInterval(b) && p.gone == nil && (p.touched() || len(p.on) > 0) {
			all = append(all, p.Process)
		}
	}
	return all
}

// Followed notes whether the sensor reports the launches of a process from now on. If it
// cannot, the whole process is one task.
func (m *Core) Followed(of sensor.Process, can bool, now time.Time) {
	p := m.processes[of.Identity]
	if p == nil {
		return
	}
	p.followed, p.unfollowed = can, !can
	m.begin(p, now)
}
