package stop

// Job control, as in the kernel's kernel/signal.c, and what a thread does at a call.

// sigstop queues SIGSTOP to one thread.
func (s *state) sigstop(t *thread) {
	if s.life == alive {
		t.queue = true
	}
}

// sigcont is SIGCONT to the process: it takes SIGSTOP off all queues, cancels a group
// stop that has begun, and wakes everybody.
func (s *state) sigcont() {
	if s.life != alive {
		return
	}
	s.shared = false
	for i := range s.threads {
		t := &s.threads[i]
		woken := t.stop
		if t.at > sending && t.at < dead {
			s.holds[t.hold].woken = true
		}
		t.queue, t.group, t.stop = false, false, false
		if woken && s.latest > s.latestReleased { // the program on wake-up that is no more
			s.sigstop(t)
		}
	}
}

func (s *state) sigkill() {
	s.life, s.shared = dying, false
	for i := range s.threads {
		t := &s.threads[i]
		t.queue, t.group, t.stop = false, false, false
	}
}

// signalled reports whether a thread has something to do before it is in user mode.
func (s *state) signalled(t *thread) bool {
	return t.queue || t.group || s.shared || s.life == dying
}

// toUser lets a thread return to user mode, where it can; what it did is returned.
func (s *state) toUser(t *thread) string {
	switch {
	case s.life == dying:
		*t = thread{at: dead, hold: t.hold}
		for _, o := range s.threads {
			if o.at != dead {
				return "thread %d dies"
			}
		}
		s.life, s.foreign = ended, false
		return "thread %d dies, and the process has ended"
	case t.group:
		t.group, t.stop = false, true
		return "thread %d takes part in the group stop"
	case t.queue || s.shared:
		if t.queue {
			t.queue = false
		} else {
			s.shared = false
		}
		for i := range s.threads {
			o := &s.threads[i]
			o.group = o != t && o.at != dead && !o.stop
		}
		t.stop = true
		return "thread %d takes SIGSTOP off its queue, and stops"
	case t.at == returning:
		t.at = running
		h := &s.holds[t.hold]
		h.decided, h.woken, h.ended, h.excused = false, false, false, false // no longer of interest
		t.hold += threads
		return "thread %d runs its call"
	default:
		t.at = running
		return "thread %d wakes up"
	}
}

// steps of one thread.
func (m *model) thread(s state, i int) {
	t := &s.threads[i]
	if t.stop || t.at == dead {
		return
	}
	switch t.at {
	case running, asleep:
		if s.signalled(t) || t.at == asleep {
			next := s
			m.add(next.toUser(&next.threads[i]), i, next)
		}
		if t.at == asleep {
			return
		}
		if m.sleeps && i == 0 && !s.signalled(t) {
			t.at = asleep
			m.add("thread %d sleeps in a system call", i, s)
		}
		if t.hold < maxHolds && t.hold/threads < m.calls[i] && !s.open && !s.dropped && s.life == alive {
			t.at = recording
			m.add("thread %d makes a call", i, s)
		}
	case returning:
		next := s
		did := next.toUser(&next.threads[i])
		m.add(did, i, next)
		if t.queue && next.threads[i].stop && s.holds[t.hold].ended && !m.writeFails {
			m.broken(again, "a thread stops for a hold that was ended before")
		}
		if h := s.holds[t.hold]; next.threads[i].at == running && h.made && !h.decided && !h.excused && !s.continued {
			m.broken(undecided, "a call that was held runs undecided")
		}
	default:
		m.call(s, i)
	}
}

// call is the next step of stop_here, in internal/cudabpf/hold.h.
func (m *model) call(s state, i int) {
	t := &s.threads[i]
	h := &s.holds[t.hold]
	switch t.at {
	case recording:
		*h = held{made: true, phase: Recorded}
		if m.onePhase {
			h.phase = Stopped
		}
		if m.secondSender {
			s.latest++
			h.number = s.latest
		}
		t.at = sending
		m.add("thread %d writes its hold down", i, s)
	case sending:
		failed := s
		unrecorded := h.phase == 0 && s.life == alive
		s.sigstop(t)
		t.at = looking
		if m.noRecheck {
			t.at = marking
		}
		m.add("thread %d sends itself SIGSTOP", i, s)
		if unrecorded {
			m.broken(unlisted, "SIGSTOP is sent, and its hold is not on record")
		}
		if m.sendFails {
			failed.threads[i].at = deleting
			failed.holds[t.hold].excused = true
			m.add("thread %d cannot send SIGSTOP", i, failed)
		}
	case looking:
		did := "thread %d sees that its hold is not released"
		t.at = checking
		if h.released != 0 {
			t.at, did = undoing, "thread %d sees that its hold is released"
		}
		m.add(did, i, s)
	case checking:
		did := "thread %d sees that the guard is not open"
		t.at = marking
		if s.open {
			t.at, did = undoing, "thread %d sees that the guard is open"
		}
		m.add(did, i, s)
	case marking:
		if h.phase != 0 {
			h.phase = Stopped
		}
		t.at = returning
		m.add("thread %d marks its hold Stopped, if that is on record", i, s)
	case undoing:
		s.sigcont()
		s.excuse(allHolds)
		t.at = deleting
		m.add("thread %d undoes it: SIGCONT", i, s)
	case deleting:
		s.forget(1 << t.hold)
		t.at = returning
		m.add("thread %d takes its hold off the record", i, s)
	}
}

// excuse says of holds, those whose SIGSTOP was sent, that their calls may run undecided.
func (s *state) excuse(set uint8) {
	for i := range s.threads {
		t := &s.threads[i]
		if t.at > sending && t.at < dead && set>>t.hold&1 != 0 {
			s.holds[t.hold].excused = true
		}
	}
}

// forget takes holds off the record, but for what was said of them.
func (s *state) forget(set uint8) {
	for n := range s.holds {
		if set>>n&1 != 0 {
			s.holds[n].phase, s.holds[n].ran = 0, false
		}
	}
	s.decided &^= set
}

// forgetRest forgets what was said of holds.
func (s *state) forgetRest(set uint8) {
	for n := range s.holds {
		if set>>n&1 != 0 {
			s.holds[n].lease, s.holds[n].released = false, 0
		}
	}
}
