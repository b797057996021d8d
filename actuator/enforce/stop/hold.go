package stop

import "time"

// Phase is how far a hold has come. It only goes forward.
type Phase uint8

// The phases. The thread makes the first two, who ends the hold the others.
const (
	Recorded  Phase = iota + 1 // the thread is about to stop itself
	Stopped                    // it has sent itself SIGSTOP: it may be decided about
	Released                   // it is being ended
	Continued                  // SIGCONT was sent, or need not be
)

// Hold is one stop of one thread. Times are of CLOCK_MONOTONIC.
type Hold struct {
	PID, TID int
	At       time.Duration // when it began; with PID and TID it names the hold
	Start    time.Duration // when the process started, since boot
	Phase    Phase
	Sent     bool          // the thread has sent its SIGSTOP, and has looked whether it was released
	Lease    time.Duration // somebody wants it until then; 0: nobody has looked yet
	Ending   time.Duration // when it was released; 0: it was not
}

// Key names a hold.
type Key struct {
	PID, TID int
	At       time.Duration
}

// Key returns the hold's name.
func (h Hold) Key() Key { return Key{h.PID, h.TID, h.At} }

const (
	// Lease is for how long a hold is wanted from each Record.Renew.
	Lease = 2 * time.Second
	// unseen is for how long a hold may stand that nobody has renewed.
	unseen = time.Second
	// ending is for how long who released a hold may take to send SIGCONT.
	ending = 300 * time.Millisecond
)

// Overdue reports whether a hold is to be ended by the sweeper: nobody wants it any
// more, or who began to end it did not go on.
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

// Seen is what the kernel says of a process.
type Seen struct {
	Running bool // a thread may be on a CPU, or wait for one
	Stopped bool // a thread is stopped by a signal
	// StopPending: somebody else's SIGSTOP waits behind our stop.
	StopPending bool
	// EndPending: a signal waits that asks it to end (SIGTERM, SIGINT, SIGHUP, SIGQUIT).
	EndPending bool
}

// Ready reports whether the holds of one process may end together: each is decided
// about and Stopped, and no thread runs that could begin another one meanwhile. seen must
// be older than holds: what began before nobody ran is on the list then.
func Ready(holds []Hold, decided func(Key) bool, seen Seen) bool {
	for _, h := range holds {
		if h.Phase < Stopped || h.Phase == Stopped && !decided(h.Key()) {
			return false
		}
	}
	return len(holds) > 0 && !seen.Running
}

// Step is one step of ending the holds of a process.
type Step int

// The steps, in their order.
const (
	Release  Step = iota // mark the holds Released
	Inspect              // is somebody else's SIGSTOP pending? Then Continue is left out
	Continue             // SIGCONT to the process
	Mark                 // mark the holds Continued
	Forget               // take them off the record
	Done
)

// Next is the step after this one. seen is what Inspect saw, and matters to it alone.
func (s Step) Next(seen Seen) Step {
	if s == Inspect && seen.StopPending {
		return Mark
	}
	return s + 1
}
