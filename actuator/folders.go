package actuator

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/guardian/strays"
	"github.com/laxity/laxity/internal/aside"
)

// asideEvery is how often the folders of state and channels are looked through for what was
// put aside.
const asideEvery = 10 * time.Second

// folders reads what this program, its guardian and former ones left in the folders of state and
// channels for people to see.
type folders struct {
	state, channels string
	log             *slog.Logger

	aside   []string // as last listed
	asideAt time.Time
	strays  atomic.Uint64 // processes that the guardian continued, as last read
}

// putAside lists the damaged files. One goroutine calls it.
func (f *folders) putAside(now time.Time) []string {
	if f.asideAt.IsZero() || now.Sub(f.asideAt) >= asideEvery {
		names := slices.Concat(aside.List(f.state), channels.PutAside(f.channels))
		slices.Sort(names)
		f.asideAt, f.aside = now, slices.Compact(names) // both folders may be one
	}
	return f.aside
}

// strayStops is what the guardian has counted; what was read last where that cannot be
// read now, since a counter must not fall.
func (f *folders) strayStops() uint64 {
	n, err := strays.Count(f.state)
	if err != nil {
		f.log.Debug("the count of stray stops is the last one that could be read", "err", err)
		return f.strays.Load()
	}
	f.strays.Store(n)
	return n
}
