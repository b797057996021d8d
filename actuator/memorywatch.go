package actuator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

const (
	// overshoot is by how many bytes a container may exceed its limit though its
	// allocations are guarded: by one context (see actuator/enforce/memory).
	overshoot = 512 << 20
	// byLimit is who asks for the pause of a container that exceeds its limit.
	byLimit = "its limit of GPU memory"
)

func limitLease(id string) string { return "memory-limit/" + id }

// excess says by what a container exceeds its limit and so many bytes more on one
// of its GPUs, as the snapshot shows; empty: it does not.
func excess(c task.Container, more uint64) string {
	if c.Spec.GPUMemory == 0 {
		return ""
	}
	for _, gpu := range slices.Sorted(maps.Keys(c.MemoryUsed)) {
		if held := c.MemoryUsed[gpu]; held > c.Spec.GPUMemory && held-c.Spec.GPUMemory > more {
			const mib = 1 << 20
			return fmt.Sprintf("it holds %.0f MiB on %s, and its limit is %.0f MiB", float64(held)/mib, gpu, float64(c.Spec.GPUMemory)/mib)
		}
	}
	return ""
}

// watchLimits pauses containers that exceed their limits: where allocations are
// not guarded, where one could not be denied, and where the guard does not see
// them. What it goes by is the device's memory of each process.
func (l *loop) watchLimits(now time.Time) {
	if l.o.MemoryGuard == MemoryOff || l.handsOff(now) != "" {
		return
	}
	var failures map[string]string
	if l.mem.guarded() {
		failures = l.mem.guard.Failures()
	}
	for _, c := range l.snap.Containers {
		if !l.managed(c) || c.Spec.GPUMemory == 0 {
			continue
		}
		open, failed := failures[c.ID]
		if failed {
			l.decideOnce(c.ID+"/limit", decision.Decision{Kind: decision.Memory, Result: decision.Failed, Container: c.Name, ContainerID: c.ID,
				Cause: string(allocator.Limit), Reason: "it may get more than its limit: " + open})
		}
		more := uint64(overshoot)
		switch {
		case l.mem.guard == nil:
			more, open = 0, "allocations are not guarded"
		case !l.mem.guarded():
			more, open = 0, "allocations are not guarded: "+l.mem.why()
		case failed:
			more = 0
		default:
			open = "it got by the guard"
		}
		l.keepToLimit(c, excess(c, more), open, now)
	}
}

// keepToLimit opens or closes the lease for the pause of a container.
func (l *loop) keepToLimit(c task.Container, excess, how string, now time.Time) {
	lease, open := l.limitLease(c.ID)
	_, exempt := l.book.Exemption(c.ID)
	switch {
	case open && excess == "" && !c.Paused:
		l.book.Close(lease)
	case open, exempt, excess == "":
	case c.Spec.NeverPause:
		l.decideOnce(c.ID+"/excess", decision.Decision{Kind: decision.Memory, Result: decision.Ignored, Container: c.Name, ContainerID: c.ID,
			Cause: string(allocator.Limit), Reason: excess + "; it is not paused, as it is labelled laxity.pause=never"})
	default:
		why := excess + "; " + how
		l.book.Fire(state.Lease{
			Wish: state.WishPause, Target: c.ID, By: byLimit, Why: why, Fingerprint: limitLease(c.ID),
			StartsAt: now, Opened: now, Expires: now.Add(l.Config().MaxHold),
		})
		l.decide(decision.Decision{Kind: decision.Memory, Result: decision.Opened, Container: c.Name, ContainerID: c.ID,
			GPUs: slices.Sorted(maps.Keys(c.MemoryUsed)), Cause: string(allocator.Limit), Reason: "it is paused: " + why})
	}
}

func (l *loop) limitLease(id string) (state.Lease, bool) {
	for _, lease := range l.book.Leases() {
		if lease.Wish == state.WishPause && lease.Fingerprint == limitLease(id) {
			return lease, true
		}
	}
	return state.Lease{}, false
}
