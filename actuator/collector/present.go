package collector

import (
	"slices"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/state"
)

// PresentOf is what a state says. Inbox and StrayStops are not in it.
func PresentOf(s *state.State) Present {
	p := Present{
		PauseInstead: s.NoChannels != "", Breaker: s.Breaker != "", Standby: s.Standby != "",
		Holds: len(s.Holds), GuardianUp: s.GuardianUp, DryRun: s.DryRun, Ready: s.Ready,
		Arbitrated: map[string]bool{}, Unkept: map[string]bool{}, PutAside: len(s.PutAside), SnapshotTime: s.SnapshotTime,
	}
	containers := named(s.Containers)
	p.standingsOf(s, containers)
	for _, g := range s.GPUs {
		p.Arbitrated[g.UUID], p.Unkept[g.UUID] = g.Arbitrated, g.Unkept != ""
	}
	for _, c := range containers {
		if c.DeadlineUnmet != "" {
			p.Unmet = append(p.Unmet, c.Name)
		}
		if c.MemoryUnguarded != "" {
			p.Unguarded = append(p.Unguarded, c.Name)
		}
		if c.MemoryWaitGPU != "" {
			p.Waiting = append(p.Waiting, Waiting{Container: c.Name, GPU: c.MemoryWaitGPU, Seconds: c.MemoryWaitSeconds})
		}
		for g, t := range c.MemoryDenied {
			p.Denied = append(p.Denied, Denied{Container: c.Name, GPU: g, Time: t})
		}
		for _, m := range c.Memory {
			p.Memory = append(p.Memory, Memory{Container: c.Name, GPU: m.GPU, Limit: m.Limit, Held: m.Held, Share: m.Share, Lent: m.Lent})
			if c.Swapped != "" {
				p.Swapped = append(p.Swapped, Swapped{Container: c.Name, GPU: m.GPU, Bytes: m.Swapped, Since: c.SwappedSince, Stuck: c.SwapStage == enforce.Stuck})
			}
		}
	}
	return p
}

// named returns the last container of each name, as the exporter's metrics have it: while the engine's events
// are on their way, a container and its successor can both be there, and a series that is there
// twice would fail the scrape.
func named(all []state.Container) (one []state.Container) {
	seen := once[string]{}
	for _, c := range slices.Backward(all) {
		if seen.see(c.Name) {
			one = append(one, c)
		}
	}
	slices.Reverse(one)
	return one
}
