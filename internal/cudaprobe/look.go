package cudaprobe

import "time"

// reconsider is how long a process may go on synchronising until its launches are
// looked at again: who launches no more, and only asks, is idle.
const reconsider = time.Second

// verdict is what to do about an unwatched process.
type verdict int

const (
	wait   verdict = iota // look again later
	arm                   // put the probe on its launches again
	resume                // it has launched: its probe tells of that
	finish                // it was idle for long enough: tell that its work was done
)

// sight is what a look at an unwatched process finds. Times are of CLOCK_MONOTONIC.
type sight struct {
	now      time.Duration
	since    time.Duration // the launch that made it unwatched
	armed    time.Duration // when its probe was put on again; 0: it is off
	returned time.Duration // when the last call that synchronises returned
	calling  bool          // such a call is under way
	launched bool          // since it was armed
}

// decide says what to do, and when to look again if that is not now.
//
// A process is armed half a quiet time after a return, for attaching probes takes the
// kernel up to 10 ms, and one that synchronises at every step is not idle in between. It is
// not said to be idle unless its probe was there for half a quiet time and saw
// nothing; nor while a call waits for the GPU; nor if no call returned since the last
// launch that was seen.
func (s sight) decide(quiet time.Duration) (v verdict, again time.Duration) {
	switch {
	case s.armed != 0 && s.launched:
		return resume, 0
	case s.calling, s.returned <= s.since:
		return wait, s.now + quiet/2 // it will return later than now
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
