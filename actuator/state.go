package actuator

import (
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// State is what GET /api/v1/state answers.
type State struct {
	Time      time.Time   `json:"time"`
	Node      string      `json:"node"`
	DryRun    bool        `json:"dry_run"`
	Policy    string      `json:"policy"`
	Share     string      `json:"share"`
	Arbitrate Arbitration `json:"arbitrate"`
	// Ready: the actuator can act now. If not, Trouble says why.
	Ready      bool   `json:"ready"`
	Trouble    string `json:"trouble,omitempty"`
	GuardianUp bool   `json:"guardian_up"`
	// Breaker says why hands are off for a while; Standby why another one acts.
	Breaker string `json:"breaker,omitempty"`
	Standby string `json:"standby,omitempty"`
	// Drained: an alert asked for no new placements on this node.
	Drained bool `json:"drained"`
	// Inbox counts the notifications that did not take effect yet.
	Inbox            int       `json:"inbox"`
	SnapshotSequence uint64    `json:"snapshot_sequence"`
	SnapshotTime     time.Time `json:"snapshot_time,omitzero"`

	GPUs       []GPUState        `json:"gpus"`
	Containers []ContainerState  `json:"containers"`
	Holds      []journal.Hold    `json:"holds"`
	Leases     []state.Lease     `json:"leases"`
	Exemptions []state.Exemption `json:"exemptions"`
}

// GPUState is one GPU as the actuator sees it.
type GPUState struct {
	UUID        string       `json:"uuid"`
	Name        string       `json:"name"`
	Utilization task.Seconds `json:"utilization_ratio"`
	Memory      task.Seconds `json:"memory_used_ratio"`
	// Tasks counts the unfinished ones.
	Tasks      int  `json:"tasks"`
	Arbitrated bool `json:"arbitrated"`
	Relieve    bool `json:"relieve"`
	// Admitted names the containers that the policy lets run, in the order in
	// which it let them; Line those that wait, the next one first.
	Admitted []string `json:"admitted"`
	Line     []string `json:"line"`
}

// ContainerState is one container as the actuator sees it.
type ContainerState struct {
	ID         string        `json:"id"`
	Name       string        `json:"name"`
	Managed    bool          `json:"managed"`
	NeverPause bool          `json:"never_pause,omitempty"`
	Tasks      int           `json:"tasks"`
	Standing   plan.Standing `json:"standing"`
	// Waits says why it must not run now; empty when it may.
	Waits string `json:"waits,omitempty"`
}
