package view

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/state"
)

// Standing is a container's state of GPU memory, from the actuator. It is empty if no actuator acts
// on GPU memory, or none was asked.
type Standing struct {
	// Share is its entitlement on GPU, bytes. Lent is what it holds above that. Swapped is what it
	// needs to come back.
	Share   uint64 `json:"memory_share_bytes,omitempty"`
	Lent    uint64 `json:"memory_lent_bytes,omitempty"`
	Swapped uint64 `json:"memory_swapped_bytes,omitempty"`
	// Waits says what an allocation on GPU waits for, and WaitSeconds for how long; or why the
	// container may not begin to hold memory.
	Waits       string  `json:"memory_waits,omitempty"`
	WaitSeconds float64 `json:"memory_wait_seconds,omitempty"`
	// Unguarded says why its limit is only watched.
	Unguarded string `json:"memory_unguarded,omitempty"`
}

// AddMemory adds an actuator's facts about their containers to the rows.
func AddMemory(rows []Row, containers []state.Container) {
	for i := range rows {
		r := &rows[i]
		at := slices.IndexFunc(containers, func(c state.Container) bool { return c.ID == r.ContainerID })
		if at < 0 {
			continue
		}
		c := containers[at]
		for _, m := range c.Memory {
			if m.GPU == r.GPU {
				r.Share, r.Lent, r.Swapped = m.Share, m.Lent, m.Swapped
			}
		}
		r.Unguarded = c.MemoryUnguarded
		// A container that waits to begin does so on no GPU in particular.
		if c.MemoryWaitGPU == "" || c.MemoryWaitGPU == r.GPU || r.GPU == "" {
			r.Waits, r.WaitSeconds = c.MemoryWaits, c.MemoryWaitSeconds
		}
	}
}

// Note is the most unusual thing about the row's memory, in few letters: first a wait, then swapped
// memory, then a limit that is only watched, then lent memory.
func (r Row) Note() string {
	switch {
	case r.Waits != "" && r.WaitSeconds > 0:
		return "waits " + time.Duration(r.WaitSeconds*float64(time.Second)).Round(time.Second).String()
	case r.Waits != "":
		return "waits"
	case r.Swapped > 0:
		return "out " + Bytes(r.Swapped)
	case r.Unguarded != "":
		return "unguarded"
	case r.Lent > 0:
		return "lent " + Bytes(r.Lent)
	default:
		return ""
	}
}

func noteStyle(r Row) Style {
	if r.Waits != "" || r.Swapped > 0 || r.Unguarded != "" {
		return Yellow
	}
	return Plain
}

// unlessZero formats an amount; empty if it is 0.
func unlessZero(n uint64) string {
	if n == 0 {
		return ""
	}
	return Bytes(n)
}
