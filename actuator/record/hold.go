// Package record is what Laxity writes down about a container before it pauses it. Package
// journal keeps the records, and the guardian reads them.
//
// Pure: it imports the standard library only.
package record

import "time"

// Hold is the record of one container that we paused, or are about to pause.
type Hold struct {
	ContainerID string `json:"container_id"`
	Container   string `json:"container"`
	// Cause is the kind of the reason, a plan.Cause.
	Cause  string   `json:"cause"`
	Reason string   `json:"reason"`
	GPUs   []string `json:"gpus,omitempty"`
	// Tasks are the ids of the container's unfinished tasks when it was paused.
	Tasks []string `json:"tasks,omitempty"`
	// Since is when the record was written, just before the container stopped.
	Since time.Time `json:"since"`
	// Expires is when the guardian releases the container even while an actuator lives. The
	// actuator renews it while it sees the reason, never beyond Until.
	Expires time.Time `json:"expires"`
	// Until is Since + --max-hold, the longest hold allowed.
	Until time.Time `json:"until"`
	// LostPID is the container's first process if the engine lost track of the container during our
	// pause and the kernel's freezer could not be set, or 0. While that process is the first, the
	// engine's word that the container runs is not enough to remove the record.
	LostPID int `json:"lost_pid,omitempty"`
}
