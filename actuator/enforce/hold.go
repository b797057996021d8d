package enforce

import "time"

// Hold is the record of one container that we paused, or are about to pause.
type Hold struct {
	ContainerID string `json:"container_id"`
	Container   string `json:"container"`
	// Cause is what kind of reason it is, as package plan names it.
	Cause  string   `json:"cause"`
	Reason string   `json:"reason"`
	GPUs   []string `json:"gpus,omitempty"`
	// Tasks are the ids of the container's unfinished tasks when it was paused.
	Tasks []string `json:"tasks,omitempty"`
	// Since is when the record was written, just before the container stopped.
	Since time.Time `json:"since"`
	// Expires is when the guardian releases even while an actuator lives. The
	// actuator moves it on while it sees the reason, never beyond Until.
	Expires time.Time `json:"expires"`
	// Until is Since + the longest hold that is allowed (--max-hold).
	Until time.Time `json:"until"`
}

// RunDir is where records are that a boot undoes, and the locks by which programs find each
// other, if nothing else is said.
const RunDir = "/run/laxity"
