package stop

import "fmt"

// rule is what must hold in every state that can be reached.
type rule string

const (
	unlisted  rule = "no SIGSTOP without a record"
	backwards rule = "phases only go forward"
	touched   rule = "nobody else's process is touched"
	forever   rule = "nobody stands for ever whom we stopped"
	again     rule = "nobody stops for a hold after its SIGCONT"
	lost      rule = "a SIGSTOP of somebody else that is pending at Inspect is not lost"
	undecided rule = "no call runs undecided without a reason"
	kept      rule = "the record is empty in the end"
)

// world is what can happen.
type world struct {
	name   string
	calls  [threads]uint8 // at most
	sleeps bool           // thread 1 may sleep in a system call of its own
	deaths bool           // of the decider and of the guardian, at every step
	late   bool           // the time of a hold runs out, at every step
	opened bool           // the guard is opened, at every step
	// At most so many of somebody else's SIGSTOP and SIGCONT, and of SIGKILL, after
	// which another process gets the PID.
	stops, conts, kills uint8
	sendFails           bool // SIGSTOP cannot be sent
	writeFails          bool // marks cannot be written
	drops               bool // the decider guards the process no longer, and ends its holds
}

// variant is the protocol (nothing set), or a broken one.
type variant struct {
	onePhase          bool // a hold is Stopped as soon as it is on record
	noRecheck         bool // the thread does not look whether it was released
	forgetFirst       bool // the record is forgotten before SIGCONT
	continueFirst     bool // SIGCONT before the mark
	secondSender      bool // a program on wake-up stops a thread again
	noLease           bool // nobody sweeps while the decider lives
	endsAmongWanted   bool // holds are swept while another one is wanted
	oneIsEnough       bool // holds end when one of them is decided about
	noStartTime       bool // start times are not compared
	recordedForgotten bool // a hold is marked Continued and forgotten whose thread has not looked yet
	tornList          bool // a list holds what was forgotten while it was made
	listBeforeLook    bool // Ready gets a list that is older than its look
	lookOnce          bool // each thread's state is read once
	neverTidied       bool // what late steps leave behind is not tidied up
	releasedAgain     bool // a mark that is there is written once more
	pendingIgnored    bool // SIGCONT though somebody else's SIGSTOP is pending
}

// step is what can happen in a state, and the state after it.
type step struct {
	what string
	who  int // thread or hold, counted from 0; -1: it is in what
	to   state
	rule rule // that it breaks
	why  string
}

func (s step) String() string {
	if s.who < 0 {
		return s.what
	}
	return fmt.Sprintf(s.what, s.who+1)
}

type model struct {
	world
	variant
	from  state
	steps []step
}

func (m *model) add(what string, who int, to state) {
	m.steps = append(m.steps, step{what: what, who: who, to: to})
	for n, h := range to.holds {
		if h.progress() < m.from.holds[n].progress() {
			m.broken(backwards, "a hold goes back")
		}
	}
}

// broken says that the step that was added last breaks a rule.
func (m *model) broken(r rule, why string) {
	last := &m.steps[len(m.steps)-1]
	last.rule, last.why = r, why
}

// next are the steps that can happen in a state.
func (m *model) next(s state) []step {
	m.from, m.steps = s, m.steps[:0]
	for i := range threads {
		m.thread(s, i)
	}
	m.sweeps(s)
	m.decider(s)
	m.events(s)
	return m.steps
}

// events are what nobody of ours does.
func (m *model) events(s state) {
	for n, h := range s.holds {
		if m.late && h.phase != 0 && !h.ran && h.released != Continued {
			next := s
			next.holds[n].ran = true
			m.add("the time of hold %d runs out", n, next)
		}
	}
	if m.opened && !s.open {
		next := s
		next.open = true
		m.add("the guard is opened", -1, next)
	}
	if m.drops && !s.dropped {
		next := s
		next.dropped = true
		m.add("the process is not guarded any more", -1, next)
	}
	if s.life == alive && s.stops < m.stops {
		next := s
		next.stops++
		next.shared, next.foreign = true, true
		m.add("somebody else sends SIGSTOP", -1, next)
	}
	if s.life == alive && s.conts < m.conts {
		next := s
		next.conts++
		next.sigcont()
		next.foreign, next.continued = false, true
		m.add("somebody else sends SIGCONT", -1, next)
	}
	if m.kills > 0 && s.life == alive {
		next := s
		next.sigkill()
		m.add("somebody sends SIGKILL", -1, next)
	}
	if m.kills > 0 && s.life == ended {
		next := s
		next.life = stranger
		m.add("another process, which somebody else has stopped, gets the PID", -1, next)
	}
}

// alone is the next step when nobody works but the sweeper, and time passes. Threads
// finish what they do in the kernel. It returns false when nothing is left to do.
func (m *model) alone(s state) (step, bool) {
	m.from, m.steps = s, m.steps[:0]
	for i := range threads {
		t := &s.threads[i]
		if t.stop || t.at == dead || t.at <= asleep && !s.signalled(t) {
			continue
		}
		m.thread(s, i)
		return m.steps[0], true
	}
	if s.sweeper.at == idle {
		for n, h := range s.holds {
			if h.phase != 0 && !h.ran && h.released != Continued {
				s.holds[n].ran = true
				return step{what: "time passes", who: -1, to: s}, true
			}
		}
	}
	deaths := m.deaths
	m.deaths = false
	m.sweeps(s)
	m.deaths = deaths
	if len(m.steps) == 0 {
		return step{}, false
	}
	return m.steps[0], true
}

// inTheEnd checks a state in which the sweeper has nothing left to do.
func (m *model) inTheEnd(s state) (rule, string) {
	for _, t := range s.threads {
		if t.stop && !s.foreign {
			return forever, "the process stands, and nobody else has stopped it"
		}
	}
	if m.recorded(&s) != 0 || s.garbage() {
		return kept, "something is left on record"
	}
	return "", ""
}
