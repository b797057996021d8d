package actuator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/laxity/laxity/actuator/estimate"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/aside"
	"github.com/laxity/laxity/internal/replace"
)

// historyEvery is how often what was learned is written to disk, at most: losing
// the last seconds of it costs nothing.
const historyEvery = 10 * time.Second

func (a *Actuator) historyPath() string { return filepath.Join(a.o.StateDir, "history.json") }

// openHistory reads what was learned before; a history that is missing or cannot
// be read is begun anew.
func (a *Actuator) openHistory() *estimate.Book {
	raw, err := os.ReadFile(a.historyPath())
	if errors.Is(err, fs.ErrNotExist) {
		return estimate.New()
	}
	if err == nil {
		var b *estimate.Book
		if b, err = estimate.Decode(raw); err == nil {
			return b
		}
	}
	if damaged, aerr := aside.Put(a.historyPath(), err); aerr != nil {
		err = aerr
	} else {
		err = damaged
	}
	a.log.Warn("the history of tasks begins anew", "err", err)
	return estimate.New()
}

// keepHistory writes what was learned.
func (l *loop) keepHistory(now time.Time, atOnce bool) {
	if !l.history.Changed() || (!atOnce && now.Before(l.historyAt)) {
		return
	}
	l.historyAt = now.Add(historyEvery)
	raw, err := l.history.Encode()
	if err == nil {
		err = replace.File(l.historyPath(), raw, 0o600)
	}
	if err != nil {
		l.log.Error("the history of tasks is not on disk", "err", err)
	}
}

// foresee says what history has to say about a container.
func (l *loop) foresee(c *plan.Container, s task.Container, now time.Time) {
	kind := estimate.Kind{Image: s.Image, CommandID: s.CommandID}
	c.Estimates = map[string]plan.Estimate{}
	for _, t := range c.Tasks {
		if e, ok := l.history.Remaining(t, kind, now); ok {
			c.Estimates[t.ID] = plan.Estimate{Remaining: e.Remaining, Least: e.Least, Total: e.Total}
		}
	}
	demand, ok := l.history.Demand(kind)
	c.Demand = onGPUs(c.Tasks, demand, ok)
	mean, ok := l.history.Mean(kind)
	c.Mean = onGPUs(c.Tasks, mean, ok)
}

// onGPUs is the share for every GPU of the tasks; nil where it is not known.
func onGPUs(tasks []task.Task, share float64, known bool) map[string]float64 {
	if !known {
		return nil
	}
	on := map[string]float64{}
	for _, t := range tasks {
		for _, g := range t.GPUs {
			on[g] = share
		}
	}
	return on
}
