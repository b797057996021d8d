package collector

import (
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
	p.standingsOf(s)
	for _, g := range s.GPUs {
		p.Arbitrated[g.UUID], p.Unkept[g.UUID] = g.Arbitrated, g.Unkept != ""
	}
	for _, c := range s.Containers {
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
