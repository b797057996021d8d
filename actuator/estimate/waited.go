package estimate

import (
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// longestLook is the longest time between two snapshots for which the later one's utilisation counts.
const longestLook = 5 * time.Second

// steps is into how many parts a share of a GPU is divided where time is added up by it.
const steps = 20

// sharing is how a task and others used a GPU at a time: shares in steps.
type sharing struct{ own, others int }

// wait records how tasks share their GPU with others.
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
		since := w.ran
		if w.ran = s.Time; t.State != task.Running {
			w.ran = time.Time{}
		}
		if w.ran.IsZero() || since.IsZero() || len(t.GPUs) != 1 { // on several GPUs it may wait for one and use another
			continue
		}
		gpu := t.GPUs[0]
		own, known := on[gpu][t.ContainerID]
		if !known || t.MemoryUsed[gpu] == 0 { // it has not come to the GPU yet
			continue
		}
		others := -own
		for _, use := range on[gpu] {
			others += use
		}
		w.most = max(w.most, own)
		if w.beside == nil {
			w.beside = map[sharing]float64{}
		}
		passed := min(max(0, s.Time.Sub(since)), longestLook)
		w.beside[sharing{int(math.Round(steps * own)), int(math.Round(steps * min(others, 1)))}] += passed.Seconds()
	}
}

// waited is how long a task may have waited for its GPU, seconds. Nobody sees what a process waits for. So it is the time
// in which others computed and the task computed less than its kind does alone, in the part that it had less. Where
// that is not known, the most that was seen of the kind takes its place. The result is an upper bound: the task may
// have been busy elsewhere meanwhile.
func (b *Book) waited(w *watched) float64 {
	alone, known := b.Mean(w.kind)
	if !known {
		alone = w.most
		if h := b.kinds[w.kind]; h != nil {
			for _, r := range h.Runs {
				alone = max(alone, r.Most)
			}
		}
	}
	total := w.unseen // nobody saw what it did then
	for is, passed := range w.beside {
		less := 1.0
		if alone > 0 {
			less = 1 - min(1, float64(is.own)/steps/alone)
		}
		total += passed * min(float64(is.others)/steps, less)
	}
	return total
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
