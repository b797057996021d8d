package stop

import "time"

// The model: one process with two threads, the kernel's job control, what is on record,
// and who ends holds. A state is comparable, and holds nothing but small numbers.

const (
	threads  = 2
	maxHolds = 3 // hold n is of thread n%threads
	allHolds = 1<<maxHolds - 1
)

// Where a thread is.
type place uint8

const (
	running place = iota // in user mode
	asleep               // in a system call of its own
	// In the kernel's program, at a call.
	recording // it is about to write the record
	sending   // it is about to send SIGSTOP
	looking   // … to look whether it was released
	checking  // … to look whether the guard is open
	marking   // … to mark the hold Stopped
	undoing   // … to send SIGCONT
	deleting  // … to take its hold off the record
	returning // it returns to the call
	dead
)

type thread struct {
	at    place
	hold  uint8 // of the call that it makes, or makes next
	queue bool  // a SIGSTOP is queued to it
	group bool  // it is to take part in a group stop
	stop  bool  // it is stopped
}

// What the record says of a hold, and what the model knows of it.
type held struct {
	made     bool
	phase    Phase // as its thread has written it; 0: not on record
	lease    bool  // there is a lease
	ran      bool  // the time ran out that it has: the lease, or what its releaser may take
	released Phase // 0, Released or Continued
	decided  bool  // somebody decided about it
	woken    bool  // SIGCONT was sent since its SIGSTOP
	ended    bool  // who ends it has sent SIGCONT
	excused  bool  // its call may run undecided: its time was over, or the guard open
	number   uint8 // of the broken protocol with a second sender
}

// Which process has the PID.
type life uint8

const (
	alive life = iota
	dying      // SIGKILL was sent
	ended
	stranger // another process has the PID, and may be stopped by somebody else
)

// Whom a pidfd is of.
type handle uint8

const (
	none handle = iota
	ours
	strangers
)

// Where somebody is who ends holds. From run on it is at the Step that it is about to do.
type stage uint8

const (
	idle stage = iota
	opening
	comparing // the start time
	lookingAt // … threads, each of them twice: 2*threads stages
	listing   = lookingAt + 2*threads
	filling   = listing + 1 // … the list with what else is on record
	clearing  = filling + 1 // … the record of those that are through
	dropping  = clearing + 1
	run       = dropping + 1
	leftovers = run + stage(Done) // what is left of Forget
)

type ender struct {
	at                          stage
	open                        handle
	list, sent, ending, through uint8 // sets of holds
	pending                     bool  // somebody else's SIGSTOP was, at Inspect
	over                        bool  // the time of those that it ends is over, or the guard open
}

type state struct {
	threads [threads]thread
	holds   [maxHolds]held
	shared  bool // somebody else's SIGSTOP is queued to the process
	life    life
	open    bool // the guard
	dropped bool // the process is not guarded any more
	decider ender
	decided uint8 // what the decider remembers to have decided
	gone    bool  // the decider has died
	sweeper ender
	// What somebody else may still do.
	stops, conts uint8
	foreign      bool // his last signal was SIGSTOP
	continued    bool // he has sent SIGCONT
	// Of the broken protocol with a second sender: the latest hold, and released.
	latest, latestReleased uint8
}

const present = time.Minute

// listed is hold n as Record.List gives it to e. Its TID stands for its number.
func (s *state) listed(e *ender, n int) Hold {
	h := &s.holds[n]
	l := Hold{PID: 1, TID: n, At: present - 2*unseen, Lease: present + Lease/2, Phase: Recorded, Sent: e.sent>>n&1 != 0}
	if l.Sent {
		l.Phase = Stopped
	}
	if h.ran || h.phase == 0 { // what was said of a hold that is forgotten is gone, too
		l.Lease = present - 1
	}
	if h.released != 0 {
		l.Phase, l.Ending = h.released, present
		if h.ran || h.phase == 0 { // what was said of a hold that is forgotten is gone, too
			l.Ending = present - ending
		}
	}
	return l
}

// setOf is the set of the holds that listed has made.
func setOf(holds []Hold) (set uint8) {
	for _, h := range holds {
		set |= 1 << h.TID
	}
	return set
}

// progress is how far a hold has come, until it is off the record.
func (h held) progress() Phase {
	switch {
	case h.phase == 0 && h.made:
		return Continued + 1
	case h.phase != 0 && h.released != 0:
		return h.released
	}
	return h.phase
}
