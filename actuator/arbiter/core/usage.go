package core

import (
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// usage is how much of each GPU's time each container has had, as far as the device says.
type usage map[usedBy]*used

type usedBy struct{ container, gpu string }

type used struct {
	got time.Duration
	at  time.Time // of the last reading
	// worked is when it last used the GPU.
	worked time.Time
}

const (
	// longestReading is what a utilisation counts for at most, when no reading came.
	longestReading = time.Second
	// idleAfter is for how long a container must not have used the GPU to pass for idle. The
	// device's samples are up to 0.8 s old.
	idleAfter = 3 * time.Second
	// forgotten is how long after a container's last reading its use is forgotten.
	forgotten = time.Minute
)

// measure adds what a snapshot says that is new.
func (u usage) measure(s *task.Snapshot) {
	for _, c := range s.Containers {
		for gpu, share := range c.SMUtilization {
			by := usedBy{c.ID, gpu}
			is := u[by]
			if is == nil {
				is = &used{at: s.Time, worked: s.Time}
				u[by] = is
			}
			if share > 0 {
				is.worked = s.Time
			}
			if d := s.Time.Sub(is.at); d > 0 {
				is.got += time.Duration(share * float64(min(d, longestReading)))
				is.at = s.Time
			}
		}
	}
	for by, is := range u {
		if s.Time.Sub(is.at) > forgotten {
			delete(u, by)
		}
	}
}

// report adds to one of a container's processes what is known of its use. Nothing says which
// of several it was, so each has had an equal part.
func (u usage) report(t *ladder.Tenant, gpu string, processes int, now time.Time) {
	is := u[usedBy{t.Container, gpu}]
	if is == nil {
		return
	}
	t.Got, t.Measured = is.got/time.Duration(max(processes, 1)), true
	if !t.Labelled && now.Sub(is.worked) > idleAfter {
		t.Wants = ladder.No
	}
}
