package estimate

import (
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// maxMemories is the number of runs per kind whose memory is remembered.
const maxMemories = 8

// weigh records the memory that tasks hold.
func (b *Book) weigh(s *task.Snapshot) {
	for _, t := range s.Tasks {
		if w := b.tasks[t.ID]; w != nil {
			for _, n := range t.MemoryUsed {
				w.memory = max(w.memory, n)
			}
		}
	}
}

func (h *history) remember(memory uint64) {
	if memory == 0 { // too short to be seen on a GPU
		return
	}
	h.Memory = append(h.Memory, memory)
	h.Memory = h.Memory[max(0, len(h.Memory)-maxMemories):]
}

// Memory is the most that tasks of the kind held on one GPU in the latest runs, bytes, contexts
// included.
func (b *Book) Memory(k Kind) (uint64, bool) {
	h := b.kinds[k]
	if h == nil || len(h.Memory) == 0 {
		return 0, false
	}
	return slices.Max(h.Memory), true
}

// Swaps learns how long it takes to swap containers out and in.
type Swaps struct {
	out, in rate
}

// rate is bytes per second, learned by an exponential mean.
type rate struct {
	perSecond float64
}

const (
	// Used before the first measurement: an H200 (docs: 12.8 GB in 4.6 s out, 1.6 s in).
	firstOut, firstIn = 2.8e9, 8e9
	// swapSetup is the part of a swap that does not depend on memory: locking, pausing.
	swapSetup = 200 * time.Millisecond
	// latest is the weight of the latest swap.
	latest = 0.3
	// tooSmall: a swap of fewer bytes does not show the rate.
	tooSmall = 64 << 20
)

// Out learns from a swap out of so many bytes and its duration.
func (s *Swaps) Out(bytes uint64, took time.Duration) { s.out.learn(bytes, took) }

// In learns from a swap in of so many bytes and its duration.
func (s *Swaps) In(bytes uint64, took time.Duration) { s.in.learn(bytes, took) }

// Cost is how long it takes to swap so many bytes out and in again.
func (s *Swaps) Cost(bytes uint64) time.Duration {
	return 2*swapSetup + s.out.time(bytes, firstOut) + s.in.time(bytes, firstIn)
}

func (r *rate) learn(bytes uint64, took time.Duration) {
	if bytes < tooSmall || took <= 0 {
		return
	}
	now := float64(bytes) / took.Seconds()
	if r.perSecond == 0 {
		r.perSecond = now
		return
	}
	r.perSecond += latest * (now - r.perSecond)
}

func (r *rate) time(bytes uint64, first float64) time.Duration {
	perSecond := r.perSecond
	if perSecond == 0 {
		perSecond = first
	}
	return seconds(float64(bytes) / perSecond)
}
