package core

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// late keeps what is needed for events that are read after their process or container has
// ended. On a busy machine the exporter may get the processor late, and events of kernel,
// engine and device come in no order among each other.
type late struct {
	left map[string]departed // containers that ended, by id
	had  map[mark]time.Time  // processes that had a task and ended, and when Tick first saw that
}

// departed is a container that has ended.
type departed struct {
	*containerState
	at time.Time
}

// mark distinguishes a process from all others of this boot, whatever reported it.
type mark struct {
	pid     int
	started time.Duration
}

func newLate() late { return late{left: map[string]departed{}, had: map[mark]time.Time{}} }

// forgetOld forgets what ended longer than limit ago.
func (l *late) forgetOld(now time.Time, limit time.Duration) {
	for id, d := range l.left {
		if now.Sub(d.at) > limit {
			delete(l.left, id)
		}
	}
	for p, since := range l.had {
		switch {
		case since.IsZero():
			l.had[p] = now
		case now.Sub(since) > limit:
			delete(l.had, p)
		}
	}
}

// counted notes that a process ended, so that a late event of it does not count its task
// again.
func (l *late) counted(p *process) {
	if p.number > 0 && p.Started > 0 {
		l.had[mark{p.PID, p.Started}] = time.Time{}
	}
}

// container returns a container that runs or ended a moment ago; nil for any other.
func (m *Core) container(id string) *containerState {
	if b := m.containers[id]; b != nil {
		return b
	}
	return m.left[id].containerState
}

// MeetGone introduces a process that had exited before its first event was read, at now. Its
// task is counted once an event shows that there was one. It waits for the event that says
// when it ended, but not for long. The process does not take over its PID, which may be
// another's by now. A process that had a task is not met again.
func (m *Core) MeetGone(s Subject, now time.Time) {
	if _, had := m.had[mark{s.PID, s.Started}]; had || m.processes[s.Identity] != nil {
		return
	}
	m.processes[s.Identity] = &process{
		Subject: s, on: map[string]use{}, unseen: true, vague: true,
		gone: &task.Mark{Time: now, Source: task.SourcePidfd}, goneAt: now,
	}
}
