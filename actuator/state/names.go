package state

import "github.com/laxity/laxity/exporter/task"

// NameGPUs gives each GPU the name that people call it by, and says why a value is missing.
func (s *State) NameGPUs(facts *task.Snapshot) {
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.Index = facts.GPUName(g.UUID)
		g.UtilizationReason = task.ReasonOf(g.Utilization, task.NoUtilization)
		g.MemoryReason = task.ReasonOf(g.Memory, "the GPU does not answer")
	}
}
