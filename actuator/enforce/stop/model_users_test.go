package stop

// Who ends holds: the decider, which is the memory guard, and the sweeper, which is the
// guardian, and does what ReleaseAll does while the guard is open.

// decider does what the memory guard does.
func (m *model) decider(s state) {
	if s.gone {
		next := s
		next.gone = false
		m.add("the decider is started again", -1, next)
		return
	}
	if m.deaths {
		next := s
		next.decider, next.decided, next.gone = ender{}, 0, true
		m.add("the decider dies", -1, next)
	}
	if s.open {
		next := s
		next.open = false
		m.add("the decider renews the guard", -1, next)
	}
	for n := range s.holds {
		h := &s.holds[n]
		if h.phase == Stopped && s.decided>>n&1 == 0 {
			next := s
			next.decided |= 1 << n
			next.holds[n].decided = true
			m.add("the decider decides about hold %d", n, next)
		}
		if h.ran && h.phase != 0 && h.released == 0 && s.decided>>n&1 == 0 {
			next := s
			next.holds[n].ran = false
			m.add("the decider renews the lease on hold %d", n, next)
		}
		if h.made && h.phase == 0 && !h.lease && n == 0 {
			next := s
			next.holds[n].lease = true
			m.add("the decider renews the lease on hold %d, too late", n, next)
		}
	}
	m.deciderEnds(s)
}

// deciderEnds ends all holds of the process together when they are Ready.
func (m *model) deciderEnds(s state) {
	d := &s.decider
	last := lookingAt + 2*threads
	if m.lookOnce {
		last = lookingAt + threads
	}
	switch at := d.at; {
	case at == idle:
		if s.decided != 0 {
			d.at = opening
			if m.listBeforeLook {
				d.at = listing
			}
			m.add("the decider wants to end holds", -1, s)
		}
	case at == opening:
		m.opens(&s, d, "the decider opens the process")
	case at == comparing:
		if d.open == none || !m.noStartTime && !s.same(d) {
			*d = ender{}
			m.add("the decider sees that the process has ended", -1, s)
			return
		}
		d.at = lookingAt
		m.add("the decider compares the start time", -1, s)
	case at >= lookingAt && at < last:
		t := &s.threads[int(at-lookingAt)%threads]
		if t.at != dead && t.at != asleep && !t.stop {
			*d = ender{}
			m.add("the decider sees a thread that runs", -1, s)
			return
		}
		d.at++
		if d.at == last {
			d.at = listing
			if m.listBeforeLook {
				d.at = run
			}
		}
		m.add("the decider looks at a thread: it does not run", -1, s)
	case at == listing:
		m.lists(&s, d, "the decider begins to list the holds")
	case at == filling:
		holds := m.fills(&s, d)
		if !m.ready(&s, holds) {
			*d = ender{}
			m.add("the decider has listed the holds: they are not ready", -1, s)
			return
		}
		d.list, d.ending, d.at = 0, setOf(holds), run
		for _, h := range holds {
			if h.Phase >= Released {
				d.through |= 1 << h.TID
			}
		}
		if m.listBeforeLook {
			d.at = opening
		}
		m.add("the decider has listed the holds: they are ready", -1, s)
	default:
		m.ends(&s, d, false)
	}
}

func (m *model) ready(s *state, holds []Hold) bool {
	decided := func(k Key) bool { return m.oneIsEnough || s.decided>>k.TID&1 != 0 }
	return Ready(holds, decided, Threads{})
}

// sweeps does what Sweep does, and ReleaseAll.
func (m *model) sweeps(s state) {
	w := &s.sweeper
	if m.deaths && w.at != idle {
		next := s
		next.sweeper = ender{}
		m.add("the guardian dies, and is started again", -1, next)
	}
	switch w.at {
	case idle:
		if m.noLease && (!s.gone || !s.open) {
			return
		}
		if m.recorded(&s) != 0 {
			m.lists(&s, w, "the sweeper begins to list the holds")
		} else if s.garbage() && !m.neverTidied {
			s.forgetRest(allHolds)
			m.add("the sweeper tidies up", -1, s)
		}
	case filling:
		holds := m.fills(&s, w)
		w.list = setOf(holds)
		m.choose(s, holds, func(h Hold) bool { return !m.noLease && h.Overdue(present) }, "the sweeper has listed the holds")
		if s.open || s.dropped {
			m.choose(s, holds, func(Hold) bool { return true }, "nobody guards: the sweeper ends all holds")
		}
	case opening:
		m.opens(&s, w, "the sweeper opens the process")
	case comparing:
		switch {
		case w.open == none || !m.noStartTime && !s.same(w):
			w.at = dropping
			m.add("the sweeper sees that the process has ended", -1, s)
		default:
			w.at = m.first()
			if w.through != 0 {
				w.at = clearing
			}
			m.add("the sweeper compares the start time", -1, s)
		}
	case clearing:
		s.forget(w.through)
		s.forgetRest(w.through)
		w.at = m.first()
		if w.ending == 0 {
			*w = ender{}
		}
		m.add("the sweeper forgets the holds that are through", -1, s)
	case dropping:
		s.forget(w.list)
		s.forgetRest(w.list)
		*w = ender{}
		m.add("the sweeper forgets the holds of a process that has ended", -1, s)
	default:
		m.ends(&s, w, true)
	}
}

// choose divides the holds with toEnd.
func (m *model) choose(s state, holds []Hold, over func(Hold) bool, what string) {
	w := &s.sweeper // of this copy of s
	ending, through := toEnd(holds, over)
	if m.endsAmongWanted {
		ending = nil
		for _, h := range holds {
			if over(h) {
				ending = append(ending, h)
			}
		}
	}
	w.ending, w.through, w.at = setOf(ending), setOf(through), opening
	w.over = s.open || s.dropped
	for _, h := range ending {
		w.over = w.over || s.holds[h.TID].ran
	}
	if w.ending|w.through == 0 && s.life < ended {
		*w = ender{}
	}
	m.add(what, -1, s)
}

// lists is the first half of Record.List: which holds there are.
func (m *model) lists(s *state, e *ender, what string) {
	e.list, e.sent, e.at = m.recorded(s), 0, filling
	for n, h := range s.holds {
		if h.phase == Stopped {
			e.sent |= 1 << n
		}
	}
	m.add(what, -1, *s)
}

// fills is the second half: what was said of them.
func (m *model) fills(s *state, e *ender) (holds []Hold) {
	for n := range s.holds {
		if e.list>>n&1 != 0 && (s.holds[n].phase != 0 || m.tornList) {
			holds = append(holds, s.listed(e, n))
		}
	}
	return holds
}

// opens is pidfd_open: of the process that has the PID now.
func (m *model) opens(s *state, e *ender, what string) {
	e.open, e.at = ours, comparing
	switch s.life {
	case ended:
		e.open = none
	case stranger:
		e.open = strangers
	}
	m.add(what, -1, *s)
}

// same reports whether the PID is still that of the process on record.
func (s *state) same(e *ender) bool { return e.open == ours && s.life < ended }
