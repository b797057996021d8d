package core

import (
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Saved is an unfinished task as the store keeps it over a restart.
type Saved struct {
	Identity string    `json:"identity"`
	Task     task.Task `json:"task"`
	// Used lists the GPUs that ever listed it.
	Used []string `json:"used,omitempty"`
}

// State is everything that the store keeps over a restart.
type State struct {
	Open      []Saved
	Ended     []task.Task
	Overrides map[string]Override // by container id
	IdleWatts map[string]float64  // what each card draws while nobody computes, by UUID
	// Alive is when the exporter was last known to run; it bounds the error of
	// ends that nobody saw.
	Alive time.Time
}

// Changes is what must be written: each field replaces what was stored under
// the same key.
type Changes struct {
	Open      map[string]Saved     // by task id
	Ended     map[string]task.Task // by task id: closes the open one
	Dropped   []string             // ids of ended tasks that left the history
	Overrides map[string]*Override // by container id; nil removes
	IdleWatts map[string]float64   // by UUID
	// fresh are the tasks that began since the last write: the store has nothing of them.
	fresh map[string]bool
}

// Empty reports whether there is nothing to write.
func (c Changes) Empty() bool {
	return len(c.Open)+len(c.Ended)+len(c.Dropped)+len(c.Overrides)+len(c.IdleWatts) == 0
}

// Merge adds later changes.
func (c *Changes) Merge(later Changes) {
	for id := range later.fresh {
		c.begun(id)
	}
	for _, s := range later.Open {
		c.open(s)
	}
	for _, t := range later.Ended {
		c.close(t)
	}
	c.drop(later.Dropped)
	for id, o := range later.Overrides {
		c.override(id, o)
	}
	for uuid, watts := range later.IdleWatts {
		c.idle(uuid, watts)
	}
}

func (c *Changes) begun(id string) {
	if c.fresh == nil {
		c.fresh = map[string]bool{}
	}
	c.fresh[id] = true
}

func (c *Changes) open(s Saved) {
	if c.Open == nil {
		c.Open = map[string]Saved{}
	}
	c.Open[s.Task.ID] = s
}

func (c *Changes) close(t task.Task) {
	delete(c.Open, t.ID)
	if c.Ended == nil {
		c.Ended = map[string]task.Task{}
	}
	c.Ended[t.ID] = t
}

func (c *Changes) drop(ids []string) {
	for _, id := range ids {
		delete(c.Open, id)
		delete(c.Ended, id)
		// The store may still have the open one, so the drop is written in any case.
		// Otherwise changes would grow for ever while they cannot be written.
		if c.fresh[id] {
			delete(c.fresh, id)
		} else {
			c.Dropped = append(c.Dropped, id)
		}
	}
}

func (c *Changes) override(id string, o *Override) {
	if c.Overrides == nil {
		c.Overrides = map[string]*Override{}
	}
	c.Overrides[id] = o
}

func (c *Changes) idle(uuid string, watts float64) {
	if c.IdleWatts == nil {
		c.IdleWatts = map[string]float64{}
	}
	c.IdleWatts[uuid] = watts
}

// save notes that the open task of p must be written.
func (m *Core) save(p *process) {
	s := Saved{Identity: p.Identity, Task: p.open.Task}
	for uuid := range p.open.used {
		s.Used = append(s.Used, uuid)
	}
	slices.Sort(s.Used)
	m.changes.open(s)
}

// TakeChanges returns what must be written since the last call.
func (m *Core) TakeChanges() Changes {
	c := m.changes
	m.changes = Changes{}
	return c
}

// Restore takes what was saved before a restart. alive returns the process of this identity
// if it still lives. Its task goes on with its start and its deadline. The other tasks are
// lost.
func (m *Core) Restore(s State, alive func(pid int, identity string) (Subject, bool), now time.Time) {
	for id, o := range s.Overrides {
		m.overrides[id] = o
	}
	maps.Copy(m.cards.idle, s.IdleWatts)
	for _, t := range s.Ended {
		if t.End != nil {
			m.history.add(t)
		}
	}
	for _, saved := range s.Open {
		m.restore(saved, s.Alive, alive, now)
	}
	m.trimHistory()
	m.changed = true
}

func (m *Core) restore(saved Saved, lastAlive time.Time, alive func(int, string) (Subject, bool), now time.Time) {
	o := &openTask{Task: saved.Task.At(now), used: map[string]bool{}, reported: map[string]bool{}, checked: now, restored: true}
	for _, uuid := range saved.Used {
		o.used[uuid] = true
	}
	for _, uuid := range o.GPUs {
		o.reported[uuid] = true // counted before the restart
	}
	seen := latest(lastAlive, o.Start.Time)
	o.lapse, o.away = lapseAfter(seen, now), max(0, now.Sub(seen))
	subject, ok := alive(o.PID, saved.Identity)
	if !ok {
		m.end(&process{open: o}, task.Lost, *o.lapse)
		return
	}
	if subject.Container == "" {
		subject.Container = o.ContainerID
	}
	m.Meet(subject)
	p := m.processes[subject.Identity]
	p.open = o
	p.number = max(1, saved.Task.Start.Time.UnixMicro()) // as openWith: it has had a task
	p.listedAt = seen
	p.stopped = o.State == task.Held
	p.noticed = o.State == task.Swapped // until the notices are read
}

// lapseAfter returns the end of a task that ended at some time between seen and now.
func lapseAfter(seen, now time.Time) *task.Mark {
	return &task.Mark{Time: now, Source: task.SourceRestart, ErrorBound: task.SecondsOf(max(0, now.Sub(seen)))}
}
