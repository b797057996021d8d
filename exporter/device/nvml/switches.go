//go:build linux && cgo

package nvml

import (
	"errors"
	"time"

	"github.com/laxity/laxity/internal/rm"
)

// traceAgain is how long after it failed a trace is opened again.
const traceAgain = time.Minute

// trace is the driver's trace of context switches on one card; *rm.Trace is one.
type trace interface {
	// Read returns the switches since the last Read, and whether some are missing.
	Read() (switches []rm.Switch, lost bool, err error)
	Close()
}

// openTrace opens the trace of a card. NVML has none: the resource manager does.
func openTrace(uuid string) (trace, error) {
	t, err := rm.New(rm.System(), rm.Options{}).OpenTrace(uuid)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// switches follows the context switches of one card.
type switches struct {
	trace    trace // nil: not open
	presence rm.Presence
	readAt   time.Time
	count    uint64
	counted  bool      // a trace was open once
	never    bool      // this driver has no trace
	failedAt time.Time // when it was last tried in vain
}

// take returns the share of the time since the last take in which a context of each process was on
// the card; nil while that is not known.
func (s *switches) take(uuid string, open func(uuid string) (trace, error), now time.Time) map[int]float64 {
	if s.trace == nil && !s.open(uuid, open, now) {
		return nil
	}
	list, lost, err := s.trace.Read()
	if err != nil {
		s.close()
		s.failedAt = now
		return nil
	}
	for _, one := range list {
		if one.On {
			s.count++
		}
	}
	passed := now.Sub(s.readAt)
	s.readAt = now
	parts := s.presence.Take(list, lost, passed)
	if parts == nil || passed <= 0 {
		return nil
	}
	shares := make(map[int]float64, len(parts))
	for pid, part := range parts {
		shares[pid] = min(1, part.Seconds()/passed.Seconds())
	}
	return shares
}

func (s *switches) open(uuid string, open func(uuid string) (trace, error), now time.Time) bool {
	if s.never || !s.failedAt.IsZero() && now.Sub(s.failedAt) < traceAgain {
		return false
	}
	t, err := open(uuid)
	if err != nil {
		s.never = errors.Is(err, rm.ErrUnsupported)
		s.failedAt = now
		return false
	}
	s.trace, s.presence, s.readAt, s.counted, s.failedAt = t, rm.Presence{}, now, true, time.Time{}
	return true
}

// switched returns how many contexts came onto the card; nil where nobody counts them.
func (s *switches) switched() *uint64 {
	if !s.counted {
		return nil
	}
	n := s.count
	return &n
}

// close releases the card, so that its driver can be unloaded. Another driver may have a trace.
func (s *switches) close() {
	if s.trace != nil {
		s.trace.Close()
		s.trace = nil
	}
	s.never, s.failedAt = false, time.Time{}
}
