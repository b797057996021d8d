//go:build linux && cgo

package nvml

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/rm"
)

const (
	// traceWindow is how long the trace of context switches is on at each reading where there are many. It
	// makes switches longer while it is on (1.5 % of the work of two programs that take turns with kernels of 0.2 ms), and a
	// window has some fifty turns.
	traceWindow = 100 * time.Millisecond
	// traceFew is below how many switches a second it stays on from one reading to the next: so few cost
	// nothing that shows, and all of them may fall between two windows. traceSudden is from how many on that is
	// twice as many as in the window before: somebody came in the middle of it.
	traceFew, traceSudden = 150, 100
	// traceMost is the longest window that is believed: where the exporter stood still in between, newer
	// switches may have taken the places of older ones in the driver's ring (16,384), which tells nobody.
	traceMost = 1500 * time.Millisecond
	// traceJitter is how much later than its reading a window may begin, so that what happens once a
	// second is not seen always or never.
	traceJitter = 300 * time.Millisecond
	// traceAgain is how long after it failed a trace is opened again.
	traceAgain = time.Minute
)

// trace is the driver's trace of context switches on one card; *rm.Trace is one.
type trace interface {
	Start() error
	// Stop returns the switches since Start, and whether some are missing.
	Stop() (switches []rm.Switch, lost bool, err error)
	Close()
}

// tracing is what reading context switches needs of the system.
type tracing struct {
	open  func(uuid string) (trace, error)
	sleep func(time.Duration)
}

// system opens the traces of the resource manager: NVML has none.
var system = tracing{
	open: func(uuid string) (trace, error) {
		t, err := rm.New(rm.System(), rm.Options{}).OpenTrace(uuid)
		if err != nil {
			return nil, err
		}
		return t, nil
	},
	sleep: time.Sleep,
}

// switches follows the context switches of one card.
type switches struct {
	trace    trace // nil: not open
	began    time.Time
	on       bool
	rate     float64   // switches a second in the last window
	never    bool      // this driver has no trace
	failedAt time.Time // when it was last tried in vain

	// Of the last window: the share of the time in which a context of each process was on the card,
	// nil while that is not known, and how often which came.
	present map[int]float64
	seen    device.Switches
	// blind: switches are missing, or the driver did not say whose contexts they were. It hides other
	// users' processes from who has no CAP_SYS_ADMIN.
	blind bool
}

// traceAll traces the cards on which several processes have a context: for one window, or, where few
// switch, since the last reading. On the others nothing switches.
func (t tracing) traceAll(cards []*card, now func() time.Time) {
	var brief []*card
	for _, c := range cards {
		switch s := &c.switches; {
		case !s.open(t, c, now()):
		case !c.shared():
			s.drop(now)
		case !s.stop(now) || !s.goOn(now):
			brief = append(brief, c)
		}
	}
	if len(brief) == 0 {
		return
	}
	t.sleep(rand.N(traceJitter))
	for _, c := range brief {
		c.switches.start(now)
	}
	t.sleep(traceWindow)
	for _, c := range brief {
		if s := &c.switches; s.stop(now) {
			s.goOn(now)
		}
	}
}

// shared reports whether several processes have a context on the card.
func (c *card) shared() bool {
	list, ret := c.handle.GetComputeRunningProcesses()
	return ret == nvml.SUCCESS && len(list) > 1
}

// open reports whether the card has a trace, and opens it if it is time for that. What the last window
// showed is over.
func (s *switches) open(t tracing, c *card, now time.Time) bool {
	s.clear()
	if c.handle == nil || c.mig { // on MIG there is a context on each of several instances at once
		s.close()
		return false
	}
	if s.trace != nil {
		return true
	}
	if s.never || !s.failedAt.IsZero() && now.Sub(s.failedAt) < traceAgain {
		return false
	}
	opened, err := t.open(c.uuid)
	if err != nil {
		s.never, s.failedAt = errors.Is(err, rm.ErrUnsupported), now
		return false
	}
	s.trace = opened
	return true
}

func (s *switches) start(now func() time.Time) {
	if s.trace == nil { // it failed when the window before ended
		return
	}
	if err := s.trace.Start(); err != nil {
		s.fail(now())
		return
	}
	s.on, s.began = true, now()
}

// goOn starts the next window at once where few switch, and reports whether it did.
func (s *switches) goOn(now func() time.Time) bool {
	before := s.rate
	s.rate = s.seen.Rate
	if s.rate >= traceFew || s.rate >= traceSudden && s.rate >= 2*before {
		return false
	}
	s.start(now)
	return s.on
}

// drop ends a window that nobody needs.
func (s *switches) drop(now func() time.Time) {
	s.stop(now)
	s.clear()
	s.rate = 0
}

// clear forgets what the last window showed.
func (s *switches) clear() { s.present, s.seen, s.blind = nil, device.Switches{}, false }

// stop ends a window, and reports whether it showed something.
func (s *switches) stop(now func() time.Time) bool {
	if !s.on {
		return false
	}
	s.clear()
	s.on = false
	at := now()
	list, lost, err := s.trace.Stop()
	if err != nil {
		s.fail(at)
		return false
	}
	window := at.Sub(s.began)
	if lost = lost || window > traceMost; lost || window <= 0 {
		s.blind = lost
		return false
	}
	if n := len(list); n > 0 { // the driver's locks may make start and stop wait, while it records
		window = max(window, time.Duration(list[n-1].At-list[0].At))
	}
	s.seen = device.Switches{From: s.began, Seconds: window.Seconds(), Of: map[int]float64{}}
	for _, one := range list {
		if one.On {
			s.seen.Rate += 1 / window.Seconds()
			s.seen.Of[one.PID] += 1 / window.Seconds()
		}
	}
	parts := rm.Presence(list, window)
	if parts == nil {
		s.blind = len(list) > 0
		return !s.blind
	}
	s.present = make(map[int]float64, len(parts))
	for pid, part := range parts {
		s.present[pid] = min(1, part.Seconds()/window.Seconds())
	}
	return true
}

// report fills in what the last window showed. Switches say that the driver's samples are not all
// that is known, so a blind window has none.
func (s *switches) report(out *device.Card) {
	if s.trace == nil || s.blind {
		return
	}
	seen := s.seen
	out.Present, out.Switches = s.present, &seen
}

func (s *switches) fail(at time.Time) {
	s.close()
	s.failedAt = at
}

// close releases the card, so that its driver can be unloaded. Another driver may have a trace.
func (s *switches) close() {
	if s.trace != nil {
		s.trace.Close()
	}
	*s = switches{}
}
