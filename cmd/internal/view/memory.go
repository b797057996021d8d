package view

import (
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/state"
)

// Standing is how a container stands with GPU memory; the actuator knows it. All of
// it is empty where nobody acts on GPU memory, or nobody was asked.
type Standing struct {
	// Share is what it is entitled to on GPU, bytes; Lent what it holds above that;
	// Swapped what it needs to come back.
	Share   uint64 `json:"memory_share_bytes,omitempty"`
	Lent    uint64 `json:"memory_lent_bytes,omitempty"`
	Swapped uint64 `json:"memory_swapped_bytes,omitempty"`
	// Waits says what an allocation on GPU waits for, and WaitSeconds how long it has;
	// or why the container may not begin to hold memory.
	Waits       string  `json:"memory_waits,omitempty"`
	WaitSeconds float64 `json:"memory_wait_seconds,omitempty"`
	// Unguarded says why its limit is only watched.
	Unguarded string `json:"memory_unguarded,omitempty"`
}

// AddMemory puts into the rows what an actuator says of their containers.
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
		// What waits to begin does so on no GPU in particular.
		if c.MemoryWaitGPU == "" || c.MemoryWaitGPU == r.GPU || r.GPU == "" {
			r.Waits, r.WaitSeconds = c.MemoryWaits, c.MemoryWaitSeconds
		}
	}
}

// note is what is unusual about the row's memory, in few letters: a wait before
// what is swapped out, that before a limit that is only watched, and that before what
// is lent.
func (r Row) note() string {
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

// unlessZero is an amount, and nothing where there is none.
func unlessZero(n uint64) string {
	if n == 0 {
		return ""
	}
	return Bytes(n)
}
