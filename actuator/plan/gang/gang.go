// Package gang decides which GPU's plan takes a container on several GPUs, or the containers of a
// gang (laxity.gang), off and on.
//
// Its parts wait for each other (the ranks of an NCCL job), so it must be off on all of its GPUs or
// on on all of them. So it has one standing, decided by one plan: that of its home. On its other
// GPUs it is bound: their plans give it a slice, and take off and on as given.
//
// The home is the GPU on which its rank is worst, where most come before it: whatever it must give
// way to anywhere, it gives way to there. If each plan decided for itself, it would be off whenever
// any of them wanted it, which together can be always. With one home it is off no longer than one
// plan allows, and no plan waits for another, so there is no deadlock. It keeps its home for Stay,
// and while it is off, so that changing ranks do not take it off again and again.
//
// Pure: it imports the standard library and actuator/plan/ladder only.
package gang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
)

// Stay is the least time for which a container keeps its home, while that home's plan orders it.
const Stay = 10 * time.Second

// Home is the GPU whose plan takes one container off and on. The zero value has none yet.
type Home struct {
	GPU   string // UUID
	Since time.Time
}

// Next is the home from now on. ranks are the container's ranks in the queues of its GPUs, by UUID,
// from 1; 0: no plan orders it there. off: it is off now.
func (h Home) Next(now time.Time, ranks map[string]int, off bool) Home {
	if len(ranks) == 0 {
		return Home{}
	}
	// The first of equally bad ranks, so that containers on the same GPUs have one home.
	worst := slices.MinFunc(slices.Collect(maps.Keys(ranks)), func(a, b string) int {
		return cmp.Or(cmp.Compare(ranks[b], ranks[a]), cmp.Compare(a, b))
	})
	rank, there := ranks[h.GPU]
	switch {
	case !there:
		return Home{worst, now}
	case off, ranks[worst] <= rank:
		return h
	case rank > 0 && now.Sub(h.Since) < Stay:
		return h
	default:
		return Home{worst, now}
	}
}

// Bind marks t, the container as the plan of this GPU sees it, as bound, unless this GPU is its
// home.
func (h Home) Bind(t *ladder.Tenant, gpu string) {
	if gpu != h.GPU {
		t.Bound = fmt.Sprintf("it is on several GPUs, and goes off and on as one, by the plan of %s", h.GPU)
	}
}

// Slice is the part of the container's slice on a GPU that each of its n processes there gets: an
// equal part, but not below libcuda's own slice unless the whole is.
func Slice(whole time.Duration, n int) time.Duration {
	if n < 2 {
		return whole
	}
	return max(whole/time.Duration(n), min(whole, ladder.DefaultSlice)).Truncate(time.Microsecond)
}
