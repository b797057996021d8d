package estimate

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Requests estimates for servers of the kind how long a request takes (need, high) and the time
// between two starts (every, low; usual, its mean). What a request waits for others counts: it is too short for
// anybody to see how long that was. It reports false with too little history.
func (b *Book) Requests(k Kind) (need, every, usual time.Duration, ok bool) {
	h := b.kinds[k]
	if h == nil || len(h.Runs) == 0 || len(h.Every) < few {
		return 0, 0, 0, false
	}
	sum := 0.0
	for _, s := range h.Every {
		sum += s
	}
	return seconds(at(quantile, h.asMeasured())), seconds(at(lowQuantile, h.Every)), seconds(sum / float64(len(h.Every))), true
}

// Whole estimates how long a task of the kind runs from start to end, high.
func (b *Book) Whole(k Kind) (time.Duration, bool) {
	h := b.kinds[k]
	if h == nil || len(h.Runs) == 0 {
		return 0, false
	}
	return seconds(at(quantile, h.undisturbed())), true
}

// Latest is the image's kind whose task ended last. Where none has ended it is one without history.
func (b *Book) Latest(image string) Kind {
	var latest *history
	for _, h := range b.kinds {
		if h.Kind.Image == image && len(h.Runs) > 0 && (latest == nil || h.Last > latest.Last) {
			latest = h
		}
	}
	if latest == nil {
		return Kind{Image: image}
	}
	return latest.Kind
}

// follow records the times between the starts of requests. It compares only starts in the same
// snapshot: clocks may differ from one snapshot to the next.
func (b *Book) follow(s *task.Snapshot, kinds map[string]Kind) {
	servers := map[string]bool{}
	for _, c := range s.Containers {
		servers[c.ID] = c.Spec.Release == task.ReleaseBusy
	}
	all := map[string][]task.Task{}
	for _, list := range [][]task.Task{s.Tasks, s.Ended} {
		for _, t := range list {
			if servers[t.ContainerID] {
				process := t.ContainerID + "/" + strconv.Itoa(t.PID)
				all[process] = append(all[process], t)
			}
		}
	}
	last := map[string]string{}
	for process, tasks := range all {
		slices.SortFunc(tasks, func(x, y task.Task) int {
			return cmp.Or(x.Start.Time.Compare(y.Start.Time), cmp.Compare(x.ID, y.ID))
		})
		known := slices.IndexFunc(tasks, func(t task.Task) bool { return t.ID == b.last[process] })
		for i := max(known, 0) + 1; i < len(tasks); i++ {
			b.every(kinds[tasks[i].ContainerID], tasks[i].Start.Time.Sub(tasks[i-1].Start.Time))
		}
		last[process] = tasks[len(tasks)-1].ID
	}
	b.last = last
}

func (b *Book) every(k Kind, d time.Duration) {
	h := b.kinds[k]
	if h == nil { // none of its requests has been counted yet
		return
	}
	h.Every = append(h.Every, d.Seconds())
	h.Every = h.Every[max(0, len(h.Every)-maxRuns):]
	b.changed = true
}
