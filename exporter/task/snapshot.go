package task

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Snapshot is everything one node knew at one moment. It is immutable once published: readers
// share it.
type Snapshot struct {
	// Run names the run of the exporter; opaque, compare only.
	Run string `json:"run"`
	// Sequence grows with every change; equal sequences of one run mean equal facts. It
	// starts anew with the exporter. Compare Run and Sequence to learn which of two snapshots
	// is older, never Time: the wall clock may be set at any time.
	Sequence uint64 `json:"sequence"`
	// Time is when the device last confirmed the facts, by the exporter's wall clock. Age is
	// how long ago that was when the snapshot was sent. Setting the wall clock does not
	// change Age.
	Time time.Time `json:"time"`
	Age  Seconds   `json:"age_seconds"`
	Node string    `json:"node,omitempty"`

	GPUs []GPU `json:"gpus"`
	// Cards is the condition of the cards that report one.
	Cards      []Card      `json:"cards,omitempty"`
	Containers []Container `json:"containers"`
	// Tasks holds the unfinished ones, oldest start first.
	Tasks []Task `json:"tasks"`
	// Ended holds the latest ended and lost ones, latest end first. Their number is bounded.
	Ended  []Task `json:"ended"`
	Health Health `json:"health"`
}

// NoUtilization is the reason where a device says nothing of a GPU's utilization.
const NoUtilization = "the device does not say it of this GPU"

// GPU is one GPU, or one MIG instance of one.
type GPU struct {
	UUID   string `json:"uuid"`
	Index  int    `json:"index"`
	Parent string `json:"parent,omitempty"` // UUID of the card, for a MIG instance
	Name   string `json:"name"`
	Driver string `json:"driver"`
	// MemoryTotal and MemoryUsed are bytes.
	MemoryTotal uint64 `json:"memory_total_bytes"`
	MemoryUsed  uint64 `json:"memory_used_bytes"`
	// Utilization is the share of the last sample period in which a kernel ran,
	// 0–1; NaN, and null in JSON, where the device does not say (MIG). UtilizationReason says so.
	Utilization       Ratio  `json:"utilization_ratio"`
	UtilizationReason string `json:"utilization_reason,omitempty"`
	// Error says why this GPU, or its list of processes, does not answer while others do;
	// empty when it does. The GPU's tasks are then as last seen. If the GPU itself does not
	// answer, MemoryTotal is 0.
	Error string `json:"error,omitempty"`
}

// Container is one container, as far as scheduling GPUs is concerned.
type Container struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Image string `json:"image"`
	// CommandID is the same for equal command lines. It is a hash, because a command line may
	// hold passwords and everybody may read snapshots.
	CommandID string `json:"command_id,omitempty"`
	// PID is its first process in the host's PID namespace; 0 when not running.
	PID int `json:"pid,omitempty"`
	// Started is when the engine last started it; zero where not known.
	Started time.Time `json:"started,omitzero"`
	// Paused is whether the engine has paused it.
	Paused bool `json:"paused"`
	// Spec is what its labels and run-time changes ask for.
	Spec Spec `json:"spec"`
	// Invalid lists its laxity.* labels that could not be read.
	Invalid []InvalidLabel `json:"invalid_labels,omitempty"`
	// VisibleGPUs holds the UUIDs that it can see, in the order of Snapshot.GPUs; empty when not known.
	VisibleGPUs []string `json:"visible_gpus,omitempty"`
	// MemoryUsed (bytes) and SMUtilization (0–1) are sums over all its processes, by GPU
	// UUID. A GPU for which the device gives no value is absent.
	MemoryUsed    map[string]uint64  `json:"memory_used_bytes,omitempty"`
	SMUtilization map[string]float64 `json:"sm_utilization_ratio,omitempty"`
	// Processes are those that use CUDA, sorted by PID. A server's process is among them also
	// between two requests, when it has no task.
	Processes []Process `json:"processes,omitempty"`
}

// Process is a process of a container that has begun to use CUDA.
type Process struct {
	// PID is in the host's PID namespace. Never a metric label.
	PID int `json:"pid"`
	// GPUs holds the UUIDs of the GPUs that list it, sorted. It is empty until the device
	// lists its first context, which takes about 0.2 s.
	GPUs []string `json:"gpus,omitempty"`
	// MPS: it is a client of an MPS server, which owns the channels on which it computes.
	MPS bool `json:"mps,omitempty"`
}

// Health says which facts can be trusted.
type Health struct {
	// DeviceUp is false while the device does not answer; DeviceError says why.
	// GPUs and process lists are then those last seen, and no task ends because
	// it left the list.
	DeviceUp    bool   `json:"device_up"`
	DeviceError string `json:"device_error,omitempty"`
	// CardsError says why the cards' condition is not known; empty when it is.
	CardsError string `json:"cards_error,omitempty"`
	// EngineUp is the same for the container engine.
	EngineUp    bool   `json:"engine_up"`
	EngineError string `json:"engine_error,omitempty"`
	// Sensor is how starts are learned now: uprobe, fanotify or device.
	Sensor       Source `json:"sensor"`
	SensorReason string `json:"sensor_reason,omitempty"`
	// EventsLost is the least number of events that the sensor dropped for want of room since
	// the exporter began. Those starts are known from the device's list at best.
	EventsLost uint64 `json:"sensor_events_lost,omitempty"`
	// Unattributed counts the GPU processes that belong to no known container,
	// by reason.
	Unattributed map[string]int `json:"unattributed,omitempty"`
}

// Reasons why a GPU process belongs to no known container.
const (
	GoneProcess      = "gone"              // the device lists a process that has exited
	HostProcess      = "host_process"      // its cgroup names no container
	MPSServer        = "mps_server"        // it computes for its clients, which are counted themselves
	UnknownContainer = "unknown_container" // the engine does not know the container
)

// UnattributedReasons lists them all, for metrics that show zeros.
var UnattributedReasons = []string{GoneProcess, HostProcess, MPSServer, UnknownContainer}

// FindContainer returns the container with this id, else the one with this name, else the one
// whose id begins with ref, if ref has at least 12 digits and no other id begins with it. A name
// may look like another container's id: who has a full id gets its container.
func (s *Snapshot) FindContainer(ref string) (Container, bool) {
	named, begins := -1, -1
	ambiguous := false
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.ID == ref {
			return *c, true
		}
		if named < 0 && c.Name == ref {
			named = i
		}
		if len(ref) >= 12 && strings.HasPrefix(c.ID, ref) {
			ambiguous = begins >= 0
			begins = i
		}
	}
	switch {
	case named >= 0:
		return s.Containers[named], true
	case begins >= 0 && !ambiguous:
		return s.Containers[begins], true
	default:
		return Container{}, false
	}
}

// TasksOn returns the unfinished tasks that use the GPU, oldest start first.
func (s *Snapshot) TasksOn(gpu string) []Task {
	var on []Task
	for _, t := range s.Tasks {
		if slices.Contains(t.GPUs, gpu) {
			on = append(on, t)
		}
	}
	return on
}

// FindGPU returns the GPU with this UUID.
func (s *Snapshot) FindGPU(uuid string) (GPU, bool) {
	i := slices.IndexFunc(s.GPUs, func(g GPU) bool { return g.UUID == uuid })
	if i < 0 {
		return GPU{}, false
	}
	return s.GPUs[i], true
}

// GPUName is what a person calls a GPU: its index, with that of the instance on a card that is
// cut into several, as NVIDIA_VISIBLE_DEVICES has it. It is "" for one that the snapshot does
// not have.
func (s *Snapshot) GPUName(uuid string) string {
	instances := map[int]int{}
	for _, g := range s.GPUs {
		name := strconv.Itoa(g.Index)
		if g.Parent != "" {
			name += ":" + strconv.Itoa(instances[g.Index])
			instances[g.Index]++
		}
		if g.UUID == uuid {
			return name
		}
	}
	return ""
}

// CommandID returns a hash of a command line; "" for an empty one.
func CommandID(command string) string {
	if command == "" {
		return ""
	}
	h := sha256.Sum256([]byte(command))
	return hex.EncodeToString(h[:4])
}
