package allinone

import (
	"context"
	"sync/atomic"

	"github.com/laxity/laxity/exporter/task"
)

// fullFrom is the part of a GPU's memory in use from which on it counts as nearly full: below
// where rules and swaps begin to care (0.9).
const fullFrom = 0.85

// calm tells the evaluator how often it is worth evaluating. One container alone on its
// GPU needs no decision, and the evaluations would take CPU time from it.
type calm struct {
	now  atomic.Bool
	wake chan struct{}
}

func newCalm() *calm { return &calm{wake: make(chan struct{}, 1)} }

// follow reads snapshots until they end, and wakes the engine when calm comes or goes.
func (c *calm) follow(snapshots <-chan *task.Snapshot) {
	for s := range snapshots {
		if now := isCalm(s); c.now.Swap(now) != now {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (c *calm) run(ctx context.Context, watch func(context.Context) <-chan *task.Snapshot) error {
	c.follow(watch(ctx))
	return ctx.Err()
}

// isCalm reports whether no GPU has two processes of containers or is nearly full. It goes by
// processes and not by tasks, of which a server has one a request. A process whose GPU is not
// known yet could be on any.
func isCalm(s *task.Snapshot) bool {
	for _, g := range s.GPUs {
		if float64(g.MemoryUsed) >= fullFrom*float64(g.MemoryTotal) { // also one that does not answer
			return false
		}
	}
	most, anywhere, on := 0, 0, map[string]int{}
	for _, c := range s.Containers {
		for _, p := range c.Processes {
			if len(p.GPUs) == 0 {
				anywhere++
			}
			for _, gpu := range p.GPUs {
				on[gpu]++
				most = max(most, on[gpu])
			}
		}
	}
	return most+anywhere < 2
}
