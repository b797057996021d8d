package machine

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// late is what is kept for events that are read when what they are of has ended:
// the exporter may get its turn late on a busy machine, and what comes from the
// kernel, the engine and the device is in no order among each other.
type late struct {
	left map[string]departed // containers that ended, by id
	had  map[mark]time.Time  // processes that had a task and ended: since when, as far as Tick knows
}

// departed is a container that has ended.
type departed struct {
	*containerState
	at time.Time
}

// mark tells a process from all others of this boot, whoever told of it.
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

// counted notes that a process ended, so that an event of it that comes later
// does not count its task again.
func (l *late) counted(p *process) {
	if p.number > 0 && p.Started > 0 {
		l.had[mark{p.PID, p.Started}] = time.Time{}
	}
}

// box returns a container that runs, or that did a moment ago; nil for any other.
func (m *Machine) container(id string) *containerState {
	if b := m.containers[id]; b != nil {
		return b
	}
	return m.left[id].containerState
}

// MeetGone introduces a process that had exited when the first event of it was
// read, which is now. Its task is counted when an event says that there was one
// and, if that comes soon, another says when it ended. It does not take over the
// PID, which may be another process's by now. One that had a task is not met again.
func (m *Machine) MeetGone(s Subject, now time.Time) {
	if _, had := m.had[mark{s.PID, s.Started}]; had || m.processes[s.Identity] != nil {
		return
	}
	m.processes[s.Identity] = &process{
		Subject: s, on: map[string]use{}, unseen: true, vague: true,
		gone: &task.Mark{Time: now, Source: task.SourcePidfd}, goneAt: now,
	}
}
