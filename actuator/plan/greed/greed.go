// Package greed tells whether containers that we must not act on take what others leave of a GPU. Then whoever of
// ours is held, or off the GPU, leaves its time to them, and not to who comes first.
//
// It cannot be seen at once: beside many others a trainer has no more of the GPU than a small server. So it counts for
// a while.
//
// Pure: it imports the standard library only.
package greed

import (
	"math"
	"time"
)

const (
	// good is the part of the GPU from which on strangers, together, take what others leave. A trainer beside two
	// containers that want all of the GPU has a third of it.
	good = 0.3
	// smooth is how long the mean of a use is: one request of a second is no greed.
	smooth = 3 * time.Second
	// longest is the longest time that one reading counts for.
	longest = time.Second
	// rest is how long a container must not use the GPU, or not be in the readings, to count no more. A device's samples
	// are up to 0.8 s old.
	rest = 3 * time.Second
	// lasts is how long greed counts.
	lasts = time.Minute
)

// Judge knows how much of one GPU each container uses. The zero value is ready. It knows no clock but
// the times of its readings: while none comes, nothing changes.
type Judge struct {
	latest time.Time
	of     map[string]*use // by container id
}

type use struct {
	part             float64   // of the GPU, 0–1: a mean of some seconds
	at, worked, took time.Time // of the last reading; when it last used the GPU, and took what others left
}

// Read adds a reading: the part of the GPU that each container uses, 0–1, by id.
func (j *Judge) Read(at time.Time, parts map[string]float64) {
	if j.of == nil {
		j.of = map[string]*use{}
	}
	j.latest = at
	for id, part := range parts {
		u := j.of[id]
		if u == nil {
			u = &use{at: at}
			j.of[id] = u
		}
		if passed := min(at.Sub(u.at), longest); passed > 0 {
			u.part += (part - u.part) * (1 - math.Exp(-passed.Seconds()/smooth.Seconds()))
			u.at = at
		}
		if part > 0 {
			u.worked = at
		}
	}
	for id, u := range j.of {
		if at.Sub(u.at) > lasts {
			delete(j.of, id)
		}
	}
}

// Greedy reports whether strangers, by id, take what others leave: together they use a good part of the GPU, and one of
// them has no less of it than the others, or had so in the last minute. Whose use is not read counts for nothing.
// Call it with each plan.
func (j *Judge) Greedy(strangers []string) (greedy bool) {
	var here []*use
	sum := 0.0
	for _, id := range strangers {
		if u := j.of[id]; u != nil && j.latest.Sub(u.at) <= rest && j.latest.Sub(u.worked) <= rest {
			here = append(here, u)
			sum += u.part
		}
	}
	for _, u := range here {
		if sum >= good && u.part >= sum/float64(len(here)) {
			u.took = j.latest
		}
		greedy = greedy || !u.took.IsZero() && j.latest.Sub(u.took) < lasts
	}
	return greedy
}
