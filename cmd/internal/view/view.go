// Package view turns snapshots into what a person reads in a terminal: the rows of `laxity ps` and
// `laxity top`, in columns that fit the terminal.
package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// Row is one container on one GPU.
type Row struct {
	Container   string `json:"container"`
	ContainerID string `json:"container_id"`
	// Deadline is relative, seconds; 0 is none.
	Deadline task.Seconds `json:"deadline_seconds,omitempty"`
	// TimeShare is the part of the GPU's time that it is sure of while others want it, above 0
	// and at most 1; 0 is no share.
	TimeShare float64 `json:"share_ratio,omitempty"`
	// Gang names the job of which it is one part (laxity.gang); empty: none.
	Gang string `json:"gang,omitempty"`
	// State is that of its most urgent unfinished task; "idle" without one.
	State string `json:"state"`
	// Float is that task's; when idle, that of the last ended one. It is null where FloatReason says
	// why.
	Float       *task.Seconds `json:"float_seconds"`
	FloatReason string        `json:"float_reason,omitempty"`
	// Tasks counts its unfinished tasks.
	Tasks int `json:"tasks"`
	// Last is the outcome of its last ended task: hit, miss, none, lost, or "".
	Last task.Outcome `json:"last_outcome,omitempty"`
	// GPU is a UUID, task.UnknownGPU, or "" when it has used none.
	GPU string `json:"gpu,omitempty"`
	// GPUIndex is the driver's index of GPU, of its card for a MIG instance; -1 when not
	// known.
	GPUIndex int `json:"gpu_index"`
	gpuName  string
	now      time.Time
	// Image, and since when the container runs; zero where not known.
	Image   string    `json:"image,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// Hits and Misses count its last ended tasks with a deadline, as far as the exporter remembers
	// them (at least the last one, 100 of all containers at most).
	Hits   int `json:"hits"`
	Misses int `json:"misses"`
	// Invalid are its labels that could not be parsed.
	Invalid []task.InvalidLabel `json:"invalid_labels,omitempty"`
	// PIDs are its processes that use CUDA, by the host's numbers.
	PIDs []int `json:"pids,omitempty"`
	// Memory is what it holds on GPU, bytes. SM is its share of the GPU's
	// multiprocessors, 0–1; nil when not known.
	Memory uint64   `json:"memory_used_bytes"`
	SM     *float64 `json:"sm_utilization_ratio,omitempty"`
	// Limit is what it may hold of GPU (laxity.gpu-memory), bytes; 0 without a limit.
	Limit uint64 `json:"memory_limit_bytes,omitempty"`
	// Unmet says why its deadline cannot be promised, as known at the start; else empty.
	Unmet string `json:"deadline_unmet,omitempty"`
	Standing
	Order
}

// Idle is the state of a container without unfinished tasks.
const Idle = "idle"

// Rows lists the containers of a snapshot at the moment now, the most urgent
// first. Containers that are neither managed nor have used a GPU, and have no label that cannot be
// read, are left out unless all is true.
func Rows(s *task.Snapshot, now time.Time, all bool) []Row {
	rows := []Row{} // not nil, which JSON would call null
	for _, c := range s.Containers {
		found := rowsOf(s, c, now)
		if len(found) == 0 && (all || c.Spec.Managed || len(c.Invalid) > 0) {
			found = []Row{{State: Idle, GPUIndex: -1}}
		}
		for _, r := range found {
			r.Container, r.ContainerID, r.Deadline, r.TimeShare, r.Limit = c.Name, c.ID, c.Spec.Deadline, c.Spec.Share, c.Spec.GPUMemory
			r.Gang = c.Spec.Gang
			r.now, r.Image, r.Started, r.Invalid = now, c.Image, c.Started, c.Invalid
			r.Hits, r.Misses = fared(s, c.ID)
			if r.Float == nil {
				r.FloatReason = "it has had no task"
			} else {
				r.FloatReason = task.ReasonOf(*r.Float, "its task has no deadline")
			}
			for _, p := range c.Processes {
				r.PIDs = append(r.PIDs, p.PID)
			}
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			boolCompare(a.Tasks > 0, b.Tasks > 0),
			cmp.Compare(urgency(a), urgency(b)),
			cmp.Compare(a.Container, b.Container),
			cmp.Compare(a.GPUIndex, b.GPUIndex),
			cmp.Compare(a.gpuName, b.gpuName),
		)
	})
	return rows
}

// fared counts the tasks of a container that ended in time, and those that did not.
func fared(s *task.Snapshot, id string) (hits, misses int) {
	for _, t := range s.Ended {
		switch {
		case t.ContainerID != id:
		case t.Outcome() == task.Hit:
			hits++
		case t.Outcome() == task.Miss:
			misses++
		}
	}
	return hits, misses
}

// Whole makes the rows name GPUs by their UUIDs.
func Whole(rows []Row) {
	for i := range rows {
		rows[i].gpuName = rows[i].GPU
	}
}

// GPUName is a person's name of the row's GPU; "" without one.
func (r Row) GPUName() string { return r.gpuName }

// rowsOf returns one row for each GPU that the container uses or holds memory on; without any, one
// for the GPU of its last task.
func rowsOf(s *task.Snapshot, c task.Container, now time.Time) []Row {
	byGPU := map[string]*Row{}
	var order []string
	get := func(gpu string) *Row {
		r, ok := byGPU[gpu]
		if !ok {
			r = &Row{State: Idle, GPU: gpu, GPUIndex: -1, gpuName: GPUName(s, gpu), Memory: c.MemoryUsed[gpu]}
			if sm, ok := c.SMUtilization[gpu]; ok {
				r.SM = &sm
			}
			if g, ok := s.FindGPU(gpu); ok {
				r.GPUIndex = g.Index
			}
			byGPU[gpu] = r
			order = append(order, gpu)
		}
		return r
	}
	for _, t := range s.Tasks {
		if t.ContainerID != c.ID {
			continue
		}
		for _, gpu := range t.GPUs {
			r := get(gpu)
			if f := t.Float(now); r.Tasks == 0 || f < *r.Float {
				r.State, r.Float = string(t.State), &f
			}
			r.Tasks++
		}
	}
	for _, gpu := range slices.Sorted(maps.Keys(c.MemoryUsed)) {
		get(gpu) // it holds memory there, whether it computes or not
	}
	for _, t := range s.Ended { // latest first
		if t.ContainerID != c.ID {
			continue
		}
		first := len(byGPU) == 0
		for _, gpu := range t.GPUs {
			if !first && byGPU[gpu] == nil {
				continue // a GPU of long ago
			}
			r := get(gpu)
			if r.Last != "" {
				continue
			}
			r.Last = t.Outcome()
			if r.Tasks == 0 && t.State == task.Ended {
				f := t.Float(now)
				r.Float = &f
			}
		}
	}
	rows := make([]Row, 0, len(order))
	for _, gpu := range order {
		rows = append(rows, *byGPU[gpu])
	}
	return rows
}

func urgency(r Row) float64 {
	if r.Float == nil || r.Tasks == 0 {
		return math.Inf(1)
	}
	return float64(*r.Float)
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// Summary writes a line for each GPU, and one for each problem.
func Summary(w io.Writer, s *task.Snapshot) error {
	var b strings.Builder
	for _, g := range s.GPUs {
		if g.Error != "" && g.MemoryTotal == 0 {
			fmt.Fprintf(&b, "GPU %s  %s  tasks %d\n", GPUName(s, g.UUID), plain.Line(g.Name), len(s.TasksOn(g.UUID)))
			continue
		}
		use := "-"
		if u := float64(g.Utilization); !math.IsNaN(u) {
			use = fmt.Sprintf("%.0f%%", 100*u)
		}
		fmt.Fprintf(&b, "GPU %s  %s  use %s  memory %s of %s  tasks %d\n",
			GPUName(s, g.UUID), plain.Line(g.Name), use, Bytes(g.MemoryUsed), Bytes(g.MemoryTotal), len(s.TasksOn(g.UUID)))
	}
	b.WriteString(Trouble(s) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// Trouble has a line for each problem; it is empty when there is none.
func Trouble(s *task.Snapshot) string {
	var b strings.Builder
	switch {
	case s.Health.DeviceUp:
		for _, g := range s.GPUs {
			if g.Error != "" {
				fmt.Fprintf(&b, "GPU %s does not answer, its tasks are as last seen: %s\n", GPUName(s, g.UUID), plain.Line(g.Error))
			}
		}
	case s.Time.IsZero():
		fmt.Fprintf(&b, "GPUs do not answer: %s\n", plain.Line(s.Health.DeviceError))
	default:
		fmt.Fprintf(&b, "GPUs do not answer, facts are %s old: %s\n", s.Age.Duration().Round(time.Second), plain.Line(s.Health.DeviceError))
	}
	if !s.Health.EngineUp {
		fmt.Fprintf(&b, "container engine does not answer, containers are as last seen: %s\n", plain.Line(s.Health.EngineError))
	}
	return b.String()
}
