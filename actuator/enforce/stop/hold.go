package stop

import "time"

// Phase is how far a hold has come. It only goes forward.
type Phase uint8

// The phases. The thread sets the first two, the ender the others.
const (
	Recorded  Phase = iota + 1 // the thread is about to stop itself
	Stopped                    // it sent itself SIGSTOP: the call can be decided
	Released                   // the ender has begun
	Continued                  // SIGCONT was sent, or was not needed
)

// Hold is one stop of one thread. Times are of CLOCK_MONOTONIC.
type Hold struct {
	PID, TID int
	At       time.Duration // when it began; with PID and TID it names the hold
	Start    time.Duration // when the process started, since boot
	Phase    Phase
	Sent     bool          // the thread sent its SIGSTOP and then checked for Released
	Lease    time.Duration // wanted until then; 0: nobody has looked yet
	Ending   time.Duration // when it was released; 0: not yet
}

// Key names a hold.
type Key struct {
	PID, TID int
	At       time.Duration
}

// Key returns the hold's name.
func (h Hold) Key() Key { return Key{h.PID, h.TID, h.At} }

const (
	// Lease is how long a Record.Renew keeps a hold.
	Lease = 2 * time.Second
	// unseen is how long a hold may last that nobody has renewed.
	unseen = time.Second
	// ending is how long an ender may take from Released to SIGCONT.
	ending = 300 * time.Millisecond
)

// Overdue reports whether the sweeper must end a hold: nobody wants it any more, or its ender did
// not finish.
func (h Hold) Overdue(now time.Duration) bool {
	switch h.Phase {
	case Released:
		return now >= h.Ending+ending
	case Continued:
		return false
	default:
		return now >= max(h.Lease, h.At+unseen)
	}
}

// Threads is what the kernel says of the threads of a process.
type Threads struct {
	Running bool // one may be on a CPU, or wait for one
	Stopped bool // one is stopped by a signal
}

// Pending is which signals wait for a process. A stopped one does not receive them.
type Pending struct {
	Stop bool // another program's SIGSTOP, behind our stop
	End  bool // one that asks it to end: SIGTERM, SIGINT, SIGHUP or SIGQUIT
}

// Ready reports whether the holds of one process may end together: each is decided and Stopped, and
// no thread runs that could begin another hold. Read the threads before the holds: then the list has
// every hold that began before all threads stopped.
func Ready(holds []Hold, decided func(Key) bool, threads Threads) bool {
	for _, h := range holds {
		if h.Phase < Stopped || h.Phase == Stopped && !decided(h.Key()) {
			return false
		}
	}
	return len(holds) > 0 && !threads.Running
}

// Step is one step of ending the holds of a process.
type Step int

// The steps, in their order.
const (
	Release  Step = iota // mark the holds Released
	Inspect              // is another program's SIGSTOP pending? Then skip Continue
	Continue             // SIGCONT to the process
	Mark                 // mark the holds Continued
	Forget               // take them off the record
	Done
)

// Next is the step after this one. pending is what Inspect saw; no other step uses it.
func (s Step) Next(pending Pending) Step {
	if s == Inspect && pending.Stop {
		return Mark
	}
	return s + 1
}
