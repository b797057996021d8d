package rm

import "time"

// Presence adds up, from the switches of a GPU, how long a context of each process was on it.
// The zero value knows nothing yet.
//
// A context stays on the GPU until another one wants it. So presence is how long a process computed
// where others waited for the GPU, and at most how long where nobody did.
type Presence struct {
	on *interval // nil: not known
}

// interval is the time that one context, or none, is on the GPU. It has not ended.
type interval struct {
	pid   int           // nobody: no context
	start uint64        // as Switch.At
	given time.Duration // how much of it Take has returned
}

// nobody stands for the time between two contexts.
const nobody = -1

// Take returns how long each process was on the GPU in the time that passed since the last Take, in
// which these switches came. It returns nil if it does not know: before the first switch, after
// lost ones, and where the driver does not say whose they are.
//
// It never compares the GPU's clock with ours: the interval that has not ended gets what the
// others leave of the time that passed, and its end puts right what that had wrong.
func (p *Presence) Take(switches []Switch, lost bool, passed time.Duration) map[int]time.Duration {
	if lost {
		p.on = nil
	}
	whole := p.on != nil // we know who was on the GPU when this time began
	parts, sum, hidden := map[int]time.Duration{}, time.Duration(0), false
	for _, s := range switches {
		if on := p.on; on != nil && s.At > on.start {
			part := max(0, time.Duration(s.At-on.start)-on.given)
			parts[on.pid] += part
			sum += part
		}
		p.on = &interval{pid: nobody, start: s.At}
		if s.On {
			p.on.pid = s.PID
		}
		hidden = hidden || s.On && s.PID == 0
	}
	if p.on == nil {
		return nil
	}
	rest := max(0, passed-sum)
	if !whole {
		rest /= 2 // nobody knows how much of it was before the first switch
	}
	parts[p.on.pid] += rest
	p.on.given += rest
	if !whole || hidden || p.on.pid == 0 {
		return nil
	}
	delete(parts, nobody)
	return parts
}
