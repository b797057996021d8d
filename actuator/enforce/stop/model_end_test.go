package stop

// afterwards of the steps is leftovers: Forget takes away the hold first.
const afterwards = Done

// first is the first step of End.
func (m *model) first() stage {
	if m.continueFirst {
		return run + stage(Inspect)
	}
	return run + stage(Release)
}

// after is the step after this one.
func (m *model) after(step Step, pending bool) Step {
	switch {
	case m.forgetFirst:
		return map[Step]Step{Release: Inspect, Inspect: Forget, Forget: afterwards, afterwards: Continue, Continue: Mark, Mark: Done + 1}[step]
	case m.continueFirst:
		return map[Step]Step{Inspect: Continue, Continue: Release, Release: Mark, Mark: Forget, Forget: afterwards, afterwards: Done + 1}[step]
	case step == afterwards:
		return Done + 1
	}
	return step.Next(Pending{Stop: pending && !m.pendingIgnored})
}

// ends is the next step of End.
func (m *model) ends(s *state, e *ender, sweeper bool) {
	step, before := Step(e.at-run), *s
	who, what := "the decider", ""
	if sweeper {
		who = "the sweeper"
	}
	e.at = run + stage(m.after(step, e.pending))
	var rule rule
	var why string
	switch step {
	case Release:
		what = " marks the holds Released"
		if e.open == strangers && !sweeper {
			rule, why = touched, "the decider writes its answer into another process, which has the PID now"
		}
		m.release(s, e)
	case Inspect:
		what = " looks for a SIGSTOP of somebody else"
		e.pending = s.life == alive && s.shared
		e.at = run + stage(m.after(step, e.pending))
	case Continue:
		what = " sends SIGCONT"
		switch {
		case e.open == strangers:
			rule, why = touched, "SIGCONT is sent to another process, which has the PID now"
		case e.pending && s.shared && s.life == alive:
			rule, why = lost, "somebody else's SIGSTOP was pending at Inspect, and is thrown away"
		default:
			m.excuses(s, e, sweeper)
			s.sigcont()
			for i := range s.threads {
				if t := &s.threads[i]; t.at < dead && e.ending>>t.hold&1 != 0 {
					s.holds[t.hold].ended = true
				}
			}
		}
	case Mark:
		what = " marks the holds Continued"
		for n := range s.holds {
			if h := &s.holds[n]; m.sent(e)>>n&1 != 0 {
				h.released, h.ran = Continued, false
			}
		}
	case Forget:
		what = " forgets the holds"
		s.forget(m.sent(e))
	case afterwards:
		what = " forgets what was said of them"
		s.forgetRest(m.sent(e))
	}
	if e.at > leftovers {
		*e = ender{}
	}
	m.add(who+what, -1, *s)
	if rule != "" {
		m.broken(rule, why)
	}
	if m.writeFails && (step == Release || step == Mark) {
		if sweeper {
			before.sweeper.at = e.at
		} else {
			before.decider.at = e.at
		}
		m.add(who+" cannot write its marks", -1, before)
	}
}

func (m *model) release(s *state, e *ender) {
	for n := range s.holds {
		h := &s.holds[n]
		if e.ending>>n&1 == 0 {
			continue
		}
		if m.secondSender { // one value for a process, which may go back
			s.latestReleased = h.number
		}
		if h.released == 0 || m.releasedAgain {
			h.released, h.ran = Released, false
		}
	}
}

// sent is the set of those of the holds that are over after SIGCONT.
func (m *model) sent(e *ender) (set uint8) {
	if m.recordedForgotten {
		return e.ending
	}
	var holds []Hold
	for n := range maxHolds {
		if e.ending>>n&1 != 0 {
			holds = append(holds, Hold{TID: n, Sent: e.sent>>n&1 != 0})
		}
	}
	return setOf(sent(holds))
}

// excuses says which calls may run undecided by this SIGCONT. The sweeper's: those that
// it ends, as their time is over or the guard open, and those that it could not know. The
// decider's: those that somebody has released before, and any when it is late: somebody
// else has released the holds that it ends, as they were overdue.
func (m *model) excuses(s *state, e *ender, sweeper bool) {
	excused := e.through
	if sweeper && e.over {
		excused = e.ending | ^e.list
	}
	if !sweeper {
		for n, h := range s.holds {
			if e.ending>>n&1 != 0 && (h.woken || int(s.threads[n%threads].hold) != n) {
				excused = allHolds
			}
		}
	}
	s.excuse(excused)
}

// recorded is the set of the holds on record.
func (m *model) recorded(s *state) (set uint8) {
	for n, h := range s.holds {
		if h.phase != 0 {
			set |= 1 << n
		}
	}
	return set
}

// garbage reports whether something is said of holds that are not on record.
func (s *state) garbage() bool {
	for _, h := range s.holds {
		if h.phase == 0 && (h.lease || h.released != 0) {
			return true
		}
	}
	return false
}
