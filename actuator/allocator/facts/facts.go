// Package facts is what goes into and comes out of the ledger of GPU memory.
//
// Pure: it imports the standard library and actuator/allocator only.
package facts

import (
	"time"

	"github.com/laxity/laxity/actuator/allocator"
)

// GPU is one card of a snapshot, in bytes.
type GPU struct {
	UUID string
	// Total is what it has, Used what is in use by whomever.
	Total, Used uint64
}

// Container is one container that is decided about.
type Container struct {
	ID, Name string
	Gang     string // see allocator.Container
	// Limit per GPU, bytes; 0: none. Without one nobody is asked about its
	// allocations, unless cards are divided.
	Limit uint64
	// GPUs that it can see, by UUID; empty: not known.
	GPUs []string
	// Held is what the snapshot says, Peak the most that its like held, by UUID.
	Held, Peak map[string]uint64
	// See allocator.Container.
	Never, Bounded, Stays bool
	Because, Barred       string
	Rank                  int
	Swappable, Swapped    bool
}

// Facts are what is decided on.
type Facts struct {
	// Time is when the GPUs were read.
	Time       time.Time
	GPUs       []GPU
	Containers []Container
	Share      allocator.Share
	// See allocator.State.
	MaxWait, Patience time.Duration
}

// Event is something that people may want to know: a denial, a wait, its end.
type Event struct {
	allocator.Answer
	// Function of the driver that asked.
	Function string
	// Waited is how long it had waited.
	Waited time.Duration
}
