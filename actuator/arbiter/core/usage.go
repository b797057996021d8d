package core

import (
	"math"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// usage is the GPU time of each container on each GPU, as the exporter reports it.
type usage struct {
	of map[usedBy]*used
	// switches are the context switches of the GPUs where they are read.
	switches map[string]*task.Switches
	// greedy is when those that are not ours to act on last used a good part of each GPU; absent: they did not
	// since they began.
	greedy map[string]time.Time
}

func newUsage() usage {
	return usage{map[usedBy]*used{}, map[string]*task.Switches{}, map[string]time.Time{}}
}

type usedBy struct{ container, gpu string }

type used struct {
	got time.Duration
	// each is the part of one of its processes: of each reading, by how many there were then. So it only
	// grows when processes come and go.
	each time.Duration
	at   time.Time // of the last reading
	// part is the part of the GPU that it uses, 0–1: a mean of some seconds.
	part float64
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
	// goodPart is the part of a GPU from which on those that are not ours to act on take what others leave. Beside three
	// that want all of it each has a quarter: then nobody knows.
	goodPart = 0.3
	// smooth is how long the mean of used.part is. One request shall not make a container greedy.
	smooth = 3 * time.Second
	// greedyFor is how long that counts: the more others are held, the more it shows.
	greedyFor = time.Minute
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
	for _, c := range s.Containers {
		for gpu, share := range c.SMUtilization {
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
				is.part += (share - is.part) * (1 - math.Exp(-d.Seconds()/smooth.Seconds()))
				is.at = s.Time
			}
		}
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

// isGreedy reports whether containers that are not ours to act on take what others leave of a GPU, or may: together
// they use a good part of it, or did so a short while ago, or nobody's use is measured there. They must be all
// that compute there.
func (u usage) isGreedy(gpu string, containers []string, now time.Time) bool {
	if len(containers) == 0 {
		delete(u.greedy, gpu)
		return false
	}
	sum, works := 0.0, false
	for _, id := range containers {
		if is := u.of[usedBy{id, gpu}]; is != nil {
			sum += is.part
			works = works || now.Sub(is.worked) <= idleAfter
		}
	}
	switch {
	case !u.measures(gpu):
		return true
	case !works:
		delete(u.greedy, gpu)
	case sum >= goodPart:
		u.greedy[gpu] = now
	}
	at, once := u.greedy[gpu]
	return once && now.Sub(at) < greedyFor
}

// measures reports whether anybody's use of a GPU is measured.
func (u usage) measures(gpu string) bool {
	for by := range u.of {
		if by.gpu == gpu {
			return true
		}
	}
	return false
}
