package actuator

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/guardian/strays"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/internal/aside"
)

// asideEvery is how often the folders of state and channels are looked through for what was
// put aside.
const asideEvery = 10 * time.Second

// complete adds to the state what the arbiter does not know. The arbiter's goroutine calls it.
func (a *Actuator) complete(s *state.State) {
	if a.asideAt.IsZero() || s.Time.Sub(a.asideAt) >= asideEvery {
		// By this program, its guardian, or a former one.
		names := slices.Concat(aside.List(a.o.StateDir), channels.PutAside(a.o.channelsDir()))
		slices.Sort(names)
		a.asideAt, a.putAside = s.Time, slices.Compact(names) // both folders may be one
	}
	s.PutAside = a.putAside
	for _, l := range slices.Concat(a.o.Lacks, a.watch.Lacks()) {
		s.Lacks = append(s.Lacks, state.Lack(l))
	}
}

// strayStops is what the guardian has counted; what was read last where that cannot be
// read now, since a counter must not fall.
func (a *Actuator) strayStops() uint64 {
	n, err := strays.Count(a.o.StateDir)
	if err != nil {
		a.log.Debug("the count of stray stops is the last one that could be read", "err", err)
		return a.strays.Load()
	}
	a.strays.Store(n)
	return n
}

func (a *Actuator) present() collector.Present {
	p := collector.PresentOf(a.State())
	p.Inbox, p.StrayStops = a.inbox.Len(), a.strayStops()
	return p
}
