package placement

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Overview is the ranking for a container without demands, and what is reserved. The zero value
// means that there is no placement.
type Overview struct {
	Known bool
	// Error says why there is no ranking now; else empty.
	Error        string
	Method       Method
	Nodes        Ranking
	Reservations []Reservation
}

// Reservation is what is reserved for a container.
type Reservation struct {
	ID, Node, GPU, State string
	Memory               uint64 // bytes; 0 is not known
	Deadline             task.Seconds
	Expires              time.Time // zero: with its container
}
