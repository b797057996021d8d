package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/exporter/task"
)

const (
	// overshoot is how many bytes a container may exceed its limit by though its allocations are
	// guarded: one context (see actuator/enforce/memory).
	overshoot = 512 << 20
	// byLimit names the origin of the pause of a container that exceeds its limit.
	byLimit = "its limit of GPU memory"
)

func limitLease(id string) string { return "memory-limit/" + id }

// excess says by how much a container exceeds its limit plus more bytes on one of its GPUs, by the
// snapshot; empty if it does not.
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

// watchLimits pauses containers that exceed their limits: where allocations are not guarded, where
// one could not be denied, and where the guard does not see them. It uses the device's memory
// figure of each process.
func (k *Core) watchLimits() {
	if k.o.LimitsOff || k.handsOff() != "" {
		return
	}
	var failures map[string]string
	if k.memory.guarded() {
		failures = k.memory.guard.Failures
	}
	for _, c := range k.facts.snap.Containers {
		if !k.managed(c) || c.Spec.GPUMemory == 0 {
			continue
		}
		open, failed := failures[c.ID]
		if failed {
			k.decideOnce(c.ID+"/limit", decision.Decision{Kind: decision.Memory, Result: decision.Failed, Container: c.Name, ContainerID: c.ID,
				Cause: string(allocator.Limit), Reason: "it may get more than its limit: " + open})
		} else {
			delete(k.lastReason, c.ID+"/limit") // told anew when it fails again
		}
		more := uint64(overshoot)
		switch {
		case k.memory.guard == nil:
			more, open = 0, "allocations are not guarded"
		case !k.memory.guarded():
			more, open = 0, "allocations are not guarded: "+k.memory.why()
		case failed:
			more = 0
		default:
			open = "it got by the guard"
		}
		k.keepToLimit(c, excess(c, more), open)
	}
}

// keepToLimit opens or closes the lease for the container's pause.
func (k *Core) keepToLimit(c task.Container, excess, how string) {
	l, open := k.limitLease(c.ID)
	_, exempt := k.leases.Exemption(c.ID)
	switch {
	case open && excess == "" && !c.Paused:
		k.leases.Close(l)
	case open, exempt, excess == "":
	case c.Spec.NeverPause:
		k.decideOnce(c.ID+"/excess", decision.Decision{Kind: decision.Memory, Result: decision.Ignored, Container: c.Name, ContainerID: c.ID,
			Cause: string(allocator.Limit), Reason: excess + "; it is not paused, as it is labelled laxity.pause=never"})
	default:
		why := excess + "; " + how
		k.leases.Fire(lease.Lease{
			Wish: lease.Pause, Target: c.ID, By: byLimit, Why: why, Fingerprint: limitLease(c.ID),
			StartsAt: k.now, Opened: k.now, Expires: k.now.Add(k.config.MaxHold),
		})
		k.decide(decision.Decision{Kind: decision.Memory, Result: decision.Opened, Container: c.Name, ContainerID: c.ID,
			GPUs: slices.Sorted(maps.Keys(c.MemoryUsed)), Cause: string(allocator.Limit), Reason: "it is paused: " + why})
	}
}

func (k *Core) limitLease(id string) (lease.Lease, bool) {
	for _, l := range k.leases.Leases() {
		if l.Wish == lease.Pause && l.Fingerprint == limitLease(id) {
			return l, true
		}
	}
	return lease.Lease{}, false
}
