package core

import (
	"time"

	"github.com/laxity/laxity/actuator/plan/greed"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// usage is the GPU time of each container on each GPU, as the exporter reports it.
type usage struct {
	of map[usedBy]*used
	// switches are the context switches of the GPUs where they are read.
	switches map[string]*task.Switches
	// greed is by GPU.
	greed map[string]*greed.Judge
}

func newUsage() usage {
	return usage{map[usedBy]*used{}, map[string]*task.Switches{}, map[string]*greed.Judge{}}
}

type usedBy struct{ container, gpu string }

type used struct {
	got time.Duration
	// each is the part of one of its processes: of each reading, by how many there were then. So it only
	// grows when processes come and go.
	each time.Duration
	at   time.Time // of the last reading
	// worked is when it last used the GPU.
	worked    time.Time
	processes int // of the container, by the last reading
}

const (
	// longestReading is the longest time that one utilisation counts for if no other reading came.
	longestReading = time.Second
	// idleAfter is how long a container must not use the GPU to count as idle. The device's samples
	// are up to 0.8 s old.
	idleAfter = 3 * time.Second
	// forgotten is how long after a container's last reading its usage is dropped.
	forgotten = time.Minute
)

// measure adds the new readings of a snapshot.
func (u usage) measure(s *task.Snapshot) {
	clear(u.switches)
	for _, c := range s.Cards {
		if c.Switches != nil {
			u.switches[c.UUID] = c.Switches
		}
	}
	parts := map[string]map[string]float64{}
	for _, c := range s.Containers {
		for gpu, share := range c.SMUtilization {
			if parts[gpu] == nil {
				parts[gpu] = map[string]float64{}
			}
			parts[gpu][c.ID] = share
			by := usedBy{c.ID, gpu}
			is := u.of[by]
			if is == nil {
				is = &used{at: s.Time, worked: s.Time}
				u.of[by] = is
			}
			if share > 0 {
				is.worked = s.Time
			}
			is.processes = max(len(c.Processes), 1)
			if d := s.Time.Sub(is.at); d > 0 {
				took := time.Duration(share * float64(min(d, longestReading)))
				is.got, is.each = is.got+took, is.each+took/time.Duration(is.processes)
				is.at = s.Time
			}
		}
	}
	for gpu, parts := range parts {
		u.judge(gpu).Read(s.Time, parts)
	}
	for by, is := range u.of {
		if s.Time.Sub(is.at) > forgotten {
			delete(u.of, by)
		}
	}
}

// report adds the known usage to one of a container's processes. The device does not say which
// process it was, so each counts for an equal part.
func (u usage) report(t *ladder.Tenant, gpu string, now time.Time) {
	is := u.of[usedBy{t.Container, gpu}]
	if is == nil {
		return
	}
	t.Got, t.Measured = is.each, true
	u.stay(t, t.Container, gpu)
	t.Used /= float64(is.processes)
	if !t.Labelled && now.Sub(is.worked) > idleAfter {
		t.Wants = ladder.No
	}
}

// reportAll is report for the part of a gang on one GPU: the sum over its containers there.
func (u usage) reportAll(t *ladder.Tenant, here []part, gpu string) {
	for _, p := range here {
		if is := u.of[usedBy{p.ID, gpu}]; is != nil {
			t.Got, t.Measured = t.Got+is.got, true
			u.stay(t, p.ID, gpu)
		}
	}
}

// stay says whether the GPU's context switches are read, and then what part of the time the container had, and
// how long its contexts stay on the GPU.
func (u usage) stay(t *ladder.Tenant, container, gpu string) {
	s := u.switches[gpu]
	if t.Exact = s != nil; t.Exact {
		t.Used += s.Used[container]
		t.Stay = max(t.Stay, time.Duration(s.Stays[container]*float64(time.Second)))
	}
}

// switchesOf is what was last read of a GPU's context switches.
func (u usage) switchesOf(gpu string) (out ladder.Switches) {
	if s := u.switches[gpu]; s != nil {
		out = ladder.Switches{From: s.From, For: time.Duration(s.Seconds * float64(time.Second)), Rate: s.Rate}
	}
	return out
}

// judge is the one of a GPU.
func (u usage) judge(gpu string) *greed.Judge {
	if u.greed[gpu] == nil {
		u.greed[gpu] = &greed.Judge{}
	}
	return u.greed[gpu]
}
