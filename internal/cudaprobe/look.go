package cudaprobe

import "time"

// reconsider is how long a process may keep synchronising until its launches are inspected again: a
// process that launches no more, and only asks, is idle.
const reconsider = time.Second

// verdict is what to do about an unwatched process.
type verdict int

const (
	wait   verdict = iota // inspect again later
	arm                   // attach the probe to its launches again
	resume                // it has launched: its probe reports that
	finish                // it was idle for long enough: report that its work was done
)

// sight is the result of an inspection of an unwatched process. Times are of CLOCK_MONOTONIC.
type sight struct {
	now      time.Duration
	since    time.Duration // the launch that made it unwatched
	armed    time.Duration // when its probe was attached again; 0: it is off
	returned time.Duration // when the last synchronising call returned
	calling  bool          // a synchronising call is under way
	launched bool          // since it was armed
}

// decide says what to do, and when to inspect again if that is not now.
//
// A process is armed half a quiet time after a return: attaching probes takes the kernel up to 10
// ms, and a process that synchronises at every step is not idle in between. It counts as idle only
// if its probe was attached for half a quiet time and saw nothing, no call waits for the GPU, and a
// call has returned since the last launch that was seen.
func (s sight) decide(quiet time.Duration) (v verdict, again time.Duration) {
	switch {
	case s.armed != 0 && s.launched:
		return resume, 0
	case s.calling, s.returned <= s.since:
		return wait, s.now + quiet/2 // its return will be later than now
	case s.armed != 0:
		if at := max(s.returned+quiet, s.armed+quiet/2); s.now < at {
			return wait, at
		}
		return finish, 0
	}
	if at := s.returned + quiet/2; s.now < at && s.now < s.since+reconsider {
		return wait, max(at, s.now+quiet/4)
	}
	return arm, 0
}
