package machine

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// byInterval: the tasks of this container are busy intervals. Without a sensor
// that reports launches a task is the process, whatever the label says.
func (m *Machine) byInterval(b *box) bool {
	return b.spec.Release == task.ReleaseBusy && m.busyTracking
}

// launched takes a launch after idle: it opens a busy interval, or keeps the
// present one open when it comes within the gap. Events of several threads come
// out of order, so only their times count.
func (m *Machine) launched(p *process, mark task.Mark) {
	if p.open != nil && m.intervalOver(p, mark.Time) {
		m.end(p, task.Ended, *p.done)
	}
	if p.launch == nil {
		p.launch = &mark
	}
	p.launchedAt = latest(p.launchedAt, mark.Time)
}

// workDone takes the return of a call that had waited for the GPU.
func (m *Machine) workDone(p *process, mark task.Mark) {
	if p.launch != nil && (p.done == nil || p.done.Time.Before(mark.Time)) {
		p.done = &mark
	}
}

func (m *Machine) intervalOver(p *process, now time.Time) bool {
	b := m.containers[p.open.ContainerID]
	return b != nil && m.byInterval(b) && p.launch != nil && p.done != nil &&
		!p.launchedAt.After(p.done.Time) && now.Sub(p.done.Time) > m.opt.BusyGap
}

// closeBusy ends a busy interval after its gap, at the time the work was done.
func (m *Machine) closeBusy(p *process, now time.Time) {
	if p.open != nil && m.intervalOver(p, now) {
		m.end(p, task.Ended, *p.done)
	}
}

// NextTick returns when Tick has something to do; zero for never.
func (m *Machine) NextTick() time.Time {
	var next time.Time
	for _, p := range m.processes {
		if p.open == nil || p.launch == nil || p.done == nil {
			continue
		}
		if at := p.done.Time.Add(m.opt.BusyGap + time.Millisecond); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// BusyProcesses returns the PIDs whose launches the sensor should report.
func (m *Machine) BusyProcesses() []int {
	var pids []int
	for pid, p := range m.byPID {
		if b := m.containers[p.Container]; b != nil && m.byInterval(b) && (p.touched() || len(p.on) > 0) {
			pids = append(pids, pid)
		}
	}
	return pids
}
