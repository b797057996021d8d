package tracker

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/machine"
)

const (
	// mediumPolls is how many times longer than the fast interval the medium one is.
	mediumPolls = 5
	// A reading takes longer the more processes there are: 0.3 ms with one on an
	// H200, 24 ms with 100. So the pause after it is at least so many times as
	// long: up to a tenth of a core while only the device can tell something, half
	// a percent while somebody waits for its turn, which may depend on the
	// utilisation, a fifth of that otherwise.
	fastRest, waitingRest, rest = 10, 200, 1000
)

// interval is the time until the next reading of the device, when the last one
// took so long. Fast while only the device can tell that a task begins, ends or
// where it is; slow when nothing happens and something better tells that it
// begins; never so often that reading costs more than it may.
func interval(a machine.Activity, newcomer bool, took, fast, slow time.Duration) time.Duration {
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

// ticks is the time until the next tick: long when it would find nothing, for
// there is no task and no process that may make one.
func (l *loop) ticks(a machine.Activity, now time.Time) time.Duration {
	switch {
	case len(l.tracked)+a.Candidates+a.UnknownContainers > 0 || l.m.Restless(now):
		return tickEvery
	case a.Unfinished > 0:
		return calmEvery
	default:
		return restEvery
	}
}

// attend brings the next tick forward when there is something to look at.
func (l *loop) attend(a machine.Activity, now time.Time) {
	if d := l.ticks(a, now); d < l.pace {
		l.pace = d
		l.tick.Reset(d)
	}
}
