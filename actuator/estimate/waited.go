package estimate

import (
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// longestLook is the longest time between two snapshots for which the later one's utilisation counts.
const longestLook = 5 * time.Second

// wait records how long tasks may have waited for a GPU. A process that waits behind others runs on, and
// nobody sees what it waits for. So it is the time in which others computed there, as far as the task computed
// less than its kind does alone. Of a kind that was never alone that is an upper bound: it may have been busy
// elsewhere meanwhile.
func (b *Book) wait(s *task.Snapshot) {
	uses := map[string]map[string]float64{} // by container and GPU
	for _, c := range s.Containers {
		uses[c.ID] = c.SMUtilization
	}
	on := map[string]map[string]float64{} // the same of those with a running task there, by GPU first
	for _, t := range s.Tasks {
		for _, gpu := range t.GPUs {
			if use, known := uses[t.ContainerID][gpu]; known && t.State == task.Running {
				if on[gpu] == nil {
					on[gpu] = map[string]float64{}
				}
				on[gpu][t.ContainerID] = use
			}
		}
	}
	for _, t := range s.Tasks {
		w := b.tasks[t.ID]
		if w == nil {
			continue
		}
		if t.State == task.Running && !w.ran.IsZero() {
			passed := min(max(0, s.Time.Sub(w.ran)), longestLook)
			w.waited += passed.Seconds() * b.waits(w.kind, t, on)
		}
		if w.ran = s.Time; t.State != task.Running {
			w.ran = time.Time{}
		}
	}
}

// waits is the part of the present time in which the task may wait for a GPU, 0–1.
func (b *Book) waits(k Kind, t task.Task, on map[string]map[string]float64) float64 {
	alone, known := b.Mean(k)
	if !known || alone <= 0 {
		alone = 1
	}
	part := 0.0
	for _, gpu := range t.GPUs {
		own, known := on[gpu][t.ContainerID]
		if !known || t.MemoryUsed[gpu] == 0 { // it has not come to the GPU yet
			continue
		}
		others := 0.0
		for id, use := range on[gpu] {
			if id != t.ContainerID {
				others += use
			}
		}
		part = max(part, min(others, 1-min(1, own/alone)))
	}
	return min(part, 1)
}

// lengths returns those of the runs with the GPU to themselves, or of the others.
func (h *history) lengths(shared bool) []float64 {
	var out []float64
	for _, r := range h.Runs {
		if r.Shared == shared {
			out = append(out, r.Seconds)
		}
	}
	return out
}

// few is the number of undisturbed runs up to which they do not suffice.
const few = 3

// asMeasured returns the lengths of the runs that had no others beside them, and if there are too few also the
// rest.
func (h *history) asMeasured() []float64 {
	out := h.lengths(false)
	if len(out) < few {
		out = append(out, h.lengths(true)...)
	}
	return out
}

// undisturbed returns how long runs take without others: those that had none beside them, and if there are too
// few also the rest. Of a run beside others only a range is known, since it may have waited. It counts with
// what is nearest in it to the long ones of those without others, or else to the shortest one beside others.
func (h *history) undisturbed() []float64 {
	out := h.lengths(false)
	if len(out) >= few {
		return out
	}
	beside := h.lengths(true)
	if len(beside) == 0 {
		return out
	}
	likely := slices.Min(beside)
	if len(out) > 0 {
		likely = at(quantile, out)
	}
	for _, r := range h.Runs {
		if r.Shared {
			out = append(out, min(max(likely, r.Seconds-r.Waited), r.Seconds))
		}
	}
	return out
}
