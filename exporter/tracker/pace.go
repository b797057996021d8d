package tracker

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

const (
	// mediumPolls is how many times longer than the fast interval the medium one is.
	mediumPolls = 5
	// The more processes there are, the longer a reading takes: 0.3 ms with one on an H200,
	// 24 ms with 100. So the pause after a reading is at least so many times as long.
	// Readings take up to a tenth of a core while only the device shows something, half a
	// percent while a task waits for its turn, which may depend on the utilisation, and a
	// fifth of that otherwise.
	fastRest, waitingRest, rest = 10, 200, 1000
)

// interval is the time until the next reading of the device; took is how long the last one
// took. It is fast while only the device shows that a task begins or ends, or where it is. It
// is slow while nothing happens and a sensor would report a start. It is never so short that
// readings cost more than they may.
func interval(a core.Activity, newcomer bool, took, fast, slow time.Duration) time.Duration {
	quick := min(max(fast, fastRest*took), slow)
	switch {
	case !a.DeviceUp:
		return slow
	case newcomer, a.Placeless > 0, a.Sensor == task.SourceDevice && (a.MayStart || a.Unfinished+a.Candidates > 0):
		return quick
	case a.Waiting > 0:
		return min(max(mediumPolls*fast, waitingRest*took), slow)
	case a.Unfinished+a.Candidates > 0:
		return min(max(mediumPolls*fast, rest*took), slow)
	default:
		return slow
	}
}

// soon is the time until a reading that is brought forward; since is how long ago the last one
// ended. As with interval, readings cost no more than they may.
func soon(since, took, fast, slow time.Duration) time.Duration {
	return max(fast, min(fastRest*took, slow)-since)
}

// ticks is the time until the next tick. It is long when there is no task, and no process
// that may make one.
func (l *loop) ticks(a core.Activity, now time.Time) time.Duration {
	switch {
	case len(l.tracked)+a.Candidates+a.UnknownContainers > 0 || l.m.Restless(now):
		return tickEvery
	case a.Unfinished > 0:
		return calmEvery
	default:
		return restEvery
	}
}

// attend brings the next tick forward when there is something to inspect.
func (l *loop) attend(a core.Activity, now time.Time) {
	if d := l.ticks(a, now); d < l.pace {
		l.pace = d
		l.tick.Reset(d)
	}
}
