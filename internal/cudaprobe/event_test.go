package cudaprobe

import (
	"testing"
	"time"
)

// Without the monotonic clock a start that was seen before the wall clock was set back by an
// hour would give its task an hour more.
func TestTimesOfEventsHaveTheMonotonicClock(t *testing.T) {
	at, bound := readClocks().wall(uint64(monotonic()))
	if at == at.Round(0) { //nolint:staticcheck // Equal would not see it
		t.Error("there is no monotonic reading in it")
	}
	if age := time.Since(at); age < -time.Millisecond || age > time.Minute || bound < 0 {
		t.Errorf("%v ago, give or take %v", age, bound)
	}
}
