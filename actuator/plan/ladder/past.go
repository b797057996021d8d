package ladder

import (
	"slices"
	"time"
)

// stint is a time in which the same processes had their turn, or their visit.
type stint struct {
	on       []string
	from, to time.Time
}

// remembered is for how long stints are kept: what is read of the GPU is of a second, and told a while after it.
const remembered = 3 * time.Second

// pass lets the present stint last until now.
func (t *turn) pass(now time.Time) {
	if n := len(t.past); n > 0 {
		t.past[n-1].to = now
	}
}

// remember notes who is on from now on.
func (t *turn) remember(now time.Time) {
	if n := len(t.past); n == 0 || !slices.Equal(t.past[n-1].on, t.on) {
		t.past = append(t.past, stint{t.on, now, now})
	}
	old := func(s stint) bool { return now.Sub(s.to) > remembered }
	t.past = slices.DeleteFunc(t.past, old)
}

// during is for how long a process was on in a time, and for how long it was the only one.
func during(past []stint, id string, from, to time.Time) (on, alone time.Duration) {
	for _, s := range past {
		begin, end := s.from, s.to
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		if d := end.Sub(begin); d > 0 && slices.Contains(s.on, id) {
			if on += d; len(s.on) == 1 {
				alone += d
			}
		}
	}
	return on, alone
}
