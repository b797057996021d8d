// Package estimate learns from ended tasks how long the next task of the same image and command
// will compute, and how much of the GPU it wants.
//
// Pure: it imports the standard library and exporter/task only. It has no clock and no file:
// snapshots go in; Encode and Decode carry it across a restart. Its memory is bounded. It is for
// one goroutine.
package estimate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Bounds of what is remembered.
const (
	maxKinds   = 512 // least recently used ones are forgotten
	maxRuns    = 32  // of one kind, the latest
	maxIgnored = 2048
)

// quantile of the lengths that serves as estimate: high, because a task that is believed too short
// misses its deadline, while one that is believed too long only goes early.
const quantile = 0.9

// lowQuantile answers the opposite question: whether a task can still be in time.
const lowQuantile = 0.1

// Kind is what tasks of similar length have in common.
type Kind struct {
	Image, CommandID string
}

// run is one ended task.
type run struct {
	// Seconds from its start to its end, without the time it was held or paused.
	Seconds float64 `json:"seconds"`
	// Waited is how much of that it may have waited for the GPU while others computed there, seconds.
	Waited float64 `json:"waited,omitempty"`
	// Most is the highest use of its GPU that was seen beside others or alone, 0–1.
	Most float64 `json:"most,omitempty"`
	// Shared: another task ran on one of its GPUs for a good part of the run.
	Shared bool `json:"shared,omitempty"`
	// Use is the highest utilisation seen while it ran alone, 0–1; negative if it was never alone
	// for long enough.
	Use float64 `json:"use"`
	// Mean is the mean utilisation over that time; negative likewise.
	Mean float64 `json:"mean"`
}

type history struct {
	Kind Kind   `json:"kind"`
	Runs []run  `json:"runs"` // oldest first
	Last uint64 `json:"last"` // when it was last used, counted in ended tasks
	// Memory is the most that each of the latest runs held on one GPU, bytes, oldest
	// first.
	Memory []uint64 `json:"memory,omitempty"`
	// Every holds the latest times between the starts of two requests of one process, seconds,
	// oldest first.
	Every []float64 `json:"every,omitempty"`
}

// watched is an unfinished task.
type watched struct {
	kind          Kind
	use           float64             // as in run
	busy, seen    float64             // integral of the utilisation while it ran alone, and the time, seconds
	looks, shared int                 // snapshots in which it ran, and of those the ones in which it ran beside others
	unseen        float64             // how long it had run before it was first seen, if that is long, seconds
	memory        uint64              // the most that it held on one GPU, bytes
	most          float64             // as in run
	beside        map[sharing]float64 // seconds, by how it and others used its GPU
	ran           time.Time           // when it last ran, by the snapshot's clock; zero if it did not in the last snapshot
}

// Book is what was learned. Make one with New or Decode.
type Book struct {
	kinds   map[Kind]*history
	tasks   map[string]*watched // unfinished, by task id
	done    map[string]bool     // ended tasks that were counted already, by task id
	order   []string            // of done, oldest first
	alone   map[string]sole     // by GPU
	last    map[string]string   // the last task that follow has seen, by container and PID
	clock   uint64
	changed bool
}

// sole is the task that runs alone on a GPU, and since when.
type sole struct {
	taskID      string
	since, last time.Time
}

// New returns an empty book.
func New() *Book {
	return &Book{kinds: map[Kind]*history{}, tasks: map[string]*watched{}, done: map[string]bool{}, alone: map[string]sole{}}
}

// saturating is a use of the GPU that leaves no room for others. One such measurement in a run
// suffices.
const saturating = 0.9

// settle is how long after a change the utilisation shows the tasks that run now.
const settle = 700 * time.Millisecond

// Observe learns from a snapshot. Repeating a snapshot changes nothing.
func (b *Book) Observe(s *task.Snapshot) {
	if !s.Health.DeviceUp {
		return
	}
	kinds := map[string]Kind{}
	for _, c := range s.Containers {
		kinds[c.ID] = Kind{c.Image, c.CommandID}
	}
	present := map[string]bool{}
	for _, t := range s.Tasks {
		present[t.ID] = true
		if _, ok := b.tasks[t.ID]; !ok {
			if k, ok := kinds[t.ContainerID]; ok {
				b.tasks[t.ID] = &watched{kind: k, use: -1, unseen: unseen(t, s.Time)}
			}
		}
	}
	b.look(s)
	b.wait(s)
	b.weigh(s)
	for _, t := range slices.Backward(s.Ended) { // oldest first
		b.end(t)
	}
	b.follow(s, kinds)
	for id := range b.tasks {
		if !present[id] {
			delete(b.tasks, id)
		}
	}
}

// soon is how long after its start a task is first seen at the latest, unless the actuator itself starts late.
const soon = 2 * time.Second

// unseen is how long a task had run before it was first seen, seconds.
func unseen(t task.Task, now time.Time) float64 {
	if ran := t.Ran(now); ran > soon {
		return ran.Seconds()
	}
	return 0
}

// look records which tasks run together.
func (b *Book) look(s *task.Snapshot) {
	for _, g := range s.GPUs {
		var running []task.Task
		for _, t := range s.TasksOn(g.UUID) {
			if t.State == task.Running {
				running = append(running, t)
			}
		}
		for _, t := range running {
			if w := b.tasks[t.ID]; w != nil {
				w.looks++
				if len(running) > 1 {
					w.shared++
				}
			}
		}
		if len(running) != 1 {
			delete(b.alone, g.UUID)
			continue
		}
		only := running[0]
		if b.alone[g.UUID].taskID != only.ID {
			b.alone[g.UUID] = sole{only.ID, s.Time, s.Time}
		}
		a := b.alone[g.UUID]
		if w, u := b.tasks[only.ID], float64(g.Utilization); w != nil && !math.IsNaN(u) {
			d := max(0, s.Time.Sub(a.last).Seconds())
			w.busy, w.seen = w.busy+d*min(u, 1), w.seen+d
			if s.Time.Sub(a.since) >= settle {
				w.use = max(w.use, min(u, 1))
			}
		}
		a.last = s.Time
		b.alone[g.UUID] = a
	}
}

// shares reports whether others ran for a good part of the time, or may have.
func (w *watched) shares() bool {
	return w.unseen > 0 || w.looks > 0 && float64(w.shared) > 0.2*float64(w.looks)
}

// end files an ended task. Lost tasks, and those of unknown containers, teach nothing.
func (b *Book) end(t task.Task) {
	w, known := b.tasks[t.ID]
	if b.done[t.ID] || t.State != task.Ended || !known {
		return
	}
	b.done[t.ID] = true
	if b.order = append(b.order, t.ID); len(b.order) > maxIgnored {
		delete(b.done, b.order[0])
		b.order = b.order[1:]
	}
	h := b.kinds[w.kind]
	if h == nil {
		h = &history{Kind: w.kind}
		b.kinds[w.kind] = h
	}
	b.clock++
	h.Last = b.clock
	use, mean := w.use, -1.0
	ran := t.Ran(time.Time{}).Seconds()
	switch {
	case w.use >= 0 && w.seen > 0.8*ran:
		mean = w.busy / w.seen
	case use < saturating: // a phase may be missing, perhaps the one that computes
		use = -1
	}
	h.Runs = append(h.Runs, run{Seconds: ran, Waited: min(b.waited(w), ran), Most: w.most, Shared: w.shares(), Use: use, Mean: mean})
	h.Runs = h.Runs[max(0, len(h.Runs)-maxRuns):]
	h.remember(w.memory)
	b.changed = true
	if len(b.kinds) > maxKinds {
		oldest := slices.MinFunc(b.histories(), func(x, y *history) int { return cmp.Compare(x.Last, y.Last) })
		delete(b.kinds, oldest.Kind)
	}
}

// Length is how long a task runs undisturbed.
type Length struct {
	// Remaining is how long it still runs, estimated high. Least is the same, estimated low. Total
	// is its whole length, estimated high.
	Remaining, Least, Total time.Duration
}

// Remaining estimates how long the task still runs. It reports false without history.
func (b *Book) Remaining(t task.Task, k Kind, now time.Time) (l Length, ok bool) {
	h := b.kinds[k]
	if h == nil || len(h.Runs) == 0 {
		return l, false
	}
	all := h.undisturbed()
	ran := t.Ran(now).Seconds()
	done := ran // of its length, at least
	if w := b.tasks[t.ID]; w != nil {
		done = max(0, ran-b.waited(w))
	}
	rest := left(quantile, done, all)
	return Length{Remaining: seconds(rest), Least: seconds(min(h.least(done, ran), rest)), Total: seconds(max(at(quantile, all), done))}, true
}

// least estimates low how long a task still runs, of whose length at least done seconds are over, and at most ran.
// Without a run that had the GPU to itself it is nothing: nobody knows how short the others would have been,
// and a task with time left would count as late.
func (h *history) least(done, ran float64) float64 {
	longer := above(done, h.lengths(false))
	if len(longer) == 0 {
		return 0
	}
	least := at(lowQuantile, longer)
	if beside := above(done, h.lengths(true)); len(beside) > 0 {
		least = min(least, at(lowQuantile, beside))
	}
	return max(0, least-ran)
}

// left is the rest of a length after ran. A task that runs longer than any before has no known end,
// and may well run for a while.
func left(q, ran float64, lengths []float64) float64 {
	if longer := above(ran, lengths); len(longer) > 0 {
		return at(q, longer) - ran
	}
	return ran / 4
}

// above returns the values that are greater than the least one.
func above(least float64, values []float64) []float64 {
	var out []float64
	for _, v := range values {
		if v > least {
			out = append(out, v)
		}
	}
	return out
}

// Beside reports whether the lengths of the kind are of runs that did not all have the GPU to
// themselves: too few of them had.
func (b *Book) Beside(k Kind) bool {
	h := b.kinds[k]
	return h != nil && len(h.lengths(false)) < few && len(h.lengths(true)) > 0
}

// slower is the factor from which sharing counts as not worth it.
const slower = 1.25

// Demand is the share of a GPU that tasks of the kind use when they run alone, 0–1: the highest
// seen in the latest runs. It is 1 if runs beside others were measured to be slower, whatever the
// utilisation says.
func (b *Book) Demand(k Kind) (float64, bool) {
	h := b.kinds[k]
	if h == nil {
		return 0, false
	}
	alone, beside := h.lengths(false), h.lengths(true)
	if len(alone) >= 2 && len(beside) >= 2 && middle(beside) > slower*middle(alone) {
		return 1, true
	}
	use := -1.0
	for _, r := range h.Runs[max(0, len(h.Runs)-8):] {
		use = max(use, r.Use)
	}
	return max(use, 0), use >= 0
}

// Mean is the mean use of a GPU by runs that had it to themselves from start to end, 0–1.
func (b *Book) Mean(k Kind) (float64, bool) {
	h := b.kinds[k]
	if h == nil {
		return 0, false
	}
	sum, n := 0.0, 0
	for _, r := range h.Runs {
		if r.Mean >= 0 {
			sum, n = sum+r.Mean, n+1
		}
	}
	return sum / max(1, float64(n)), n > 0
}

func (b *Book) histories() []*history {
	all := make([]*history, 0, len(b.kinds))
	for _, h := range b.kinds {
		all = append(all, h)
	}
	return all
}

// at is a quantile of the lengths; of few lengths it is the longest, or the shortest.
func at(quantile float64, lengths []float64) float64 {
	if len(lengths) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(lengths))
	return s[int(math.Ceil(quantile*float64(len(s))))-1]
}

func middle(lengths []float64) float64 {
	s := slices.Sorted(slices.Values(lengths))
	return s[len(s)/2]
}

func seconds(s float64) time.Duration { return time.Duration(max(0, s) * float64(time.Second)) }
