package placement

import (
	"math"

	"github.com/laxity/laxity/exporter/task"
)

// Rest is what is known of the nodes that a short list leaves out.
type Rest struct {
	// For is the request that the list was made for; see Covers.
	For Request
	// None: no other node can take it.
	None bool
	// Free is the most memory, bytes, that another node that can take it has on
	// one GPU; in the predictive ranking on a GPU without work.
	Free uint64
	// Busy: the list is of the predictive ranking by float, for this request
	// alone; on no other node would the new task end with more than Float, or,
	// without a deadline, be with less work than Demand.
	Busy          bool
	Float, Demand task.Seconds
}

// Covers reports whether what is said of the rest is also true of req.
func (r *Rest) Covers(req Request) bool {
	if r.Busy {
		return req == r.For
	}
	return req.GPUMemory >= r.For.GPUMemory && (r.For.Deadline <= 0 || req.Deadline >= r.For.Deadline)
}

// Settles reports whether best, the first of a short list, is the first of all
// nodes: none of the rest, which r speaks of, can come before it. Where the
// predictive ranking compares floats, equal ones count as settled.
func (m Method) Settles(best Verdict, req Request, r *Rest) bool {
	switch {
	case r == nil:
		return true
	case !r.Covers(req):
		return false
	case r.None:
		return true
	case m == Paper:
		free := float64(r.Free)
		return best.Score > free || best.Score == free && best.Load <= 0
	case r.Busy && req.Deadline > 0:
		return best.Score >= float64(r.Float)
	case r.Busy:
		return best.Load < float64(r.Demand)
	default:
		// Nothing is better than a GPU without work, and of these the one with the
		// most memory.
		most := predict(nil, req).float
		return best.Score >= float64(most) && best.Load <= loadOf(0, r.Free)
	}
}

// loadOf breaks ties of the predictive ranking, least first: less work, then more
// memory.
func loadOf(demand task.Seconds, left uint64) float64 {
	return float64(demand) - float64(left)/math.MaxInt64
}
