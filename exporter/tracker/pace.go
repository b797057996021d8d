package tracker

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/machine"
)

// mediumPolls is how many times longer than the fast interval the medium one is.
const mediumPolls = 5

// interval is the time until the next reading of the device. Fast while only the
// device can tell that a task begins, ends or where it is; slow when nothing
// happens and something better tells that it begins.
func interval(a machine.Activity, fast, slow time.Duration) time.Duration {
	switch {
	case !a.DeviceUp:
		return slow
	case a.Sensor == task.SourceDevice && (a.MayStart || a.Unfinished+a.Candidates > 0):
		return fast
	case a.Placeless > 0:
		return fast
	case a.Unfinished+a.Candidates > 0:
		return min(slow, mediumPolls*fast)
	default:
		return slow
	}
}
