package core

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// containerState is a container and its settings (labels plus run-time changes).
type containerState struct {
	container.Container
	spec     task.Spec
	invalid  []task.InvalidLabel
	conflict string   // why the labels of its gang's members disagree; empty: they agree, or it is in none
	visible  []string // UUIDs; nil when not known
	certain  bool     // visible is complete
	pausedAt time.Time
	worked   bool // it has had a task
}

// Containers takes the complete list of running and paused containers.
func (m *Core) Containers(list []container.Container, now time.Time) {
	m.engineUp()
	seen := make(map[string]bool, len(list))
	for _, c := range list {
		seen[c.ID] = true
		m.put(c, now)
	}
	for id := range m.containers {
		if !seen[id] {
			m.remove(id, now)
		}
	}
	if !m.listed {
		m.listed, m.changed = true, true
		m.trimHistory()
	}
}

// Container takes one event of the engine.
func (m *Core) Container(ev container.Event, now time.Time) {
	m.engineUp()
	at := ev.Time
	if at.IsZero() || at.After(now) {
		at = now
	}
	// The engine knows the wall clock alone. By the monotonic one, as all other times, pauses keep their
	// length when the wall clock is set.
	at = now.Add(at.Sub(now))
	switch ev.Kind {
	case container.Started, container.Renamed:
		// A container that does not run can be renamed, too.
		if ev.Container != nil && (ev.Kind == container.Started || m.containers[ev.ID] != nil) {
			m.put(*ev.Container, at)
		}
	case container.Paused, container.Unpaused:
		if b := m.containers[ev.ID]; b != nil {
			m.setPaused(b, ev.Kind == container.Paused, at)
		}
	case container.Died:
		m.remove(ev.ID, now)
	case container.Removed:
		m.remove(ev.ID, now)
		if _, ok := m.overrides[ev.ID]; ok {
			delete(m.overrides, ev.ID)
			m.changes.override(ev.ID, nil)
		}
	}
}

func (m *Core) engineUp() {
	if !m.health.EngineUp || m.health.EngineError != "" {
		m.health.EngineUp, m.health.EngineError = true, ""
		m.changed = true
	}
}

func (m *Core) put(c container.Container, at time.Time) {
	b := m.containers[c.ID]
	if b == nil {
		b = &containerState{}
		m.containers[c.ID] = b
		delete(m.left, c.ID)
		b.Paused, b.pausedAt = c.Paused, at
		m.fill(b, c)
		m.facts = append(m.facts, Fact{Kind: Appeared, Container: b.published()})
		m.changed = true
		m.adopt(b, at)
		return
	}
	if c.Partial || sameContainer(b.Container, c) {
		return
	}
	paused, moved := c.Paused, c.PID > 0 && c.PID != b.PID
	c.Paused = b.Paused
	m.fill(b, c)
	m.changed = true
	if moved {
		m.facts = append(m.facts, Fact{Kind: Moved, Container: b.published()})
	}
	for _, p := range m.processes {
		if p.open != nil && p.open.ContainerID == b.ID && p.open.Container != b.Name {
			p.open.Container = b.Name
			m.save(p)
		}
	}
	m.setPaused(b, paused, at)
}

func (m *Core) fill(b *containerState, c container.Container) {
	before := b.bare().GangID()
	b.Container, b.conflict = c, ""
	b.spec, b.invalid = c.Spec(m.opt.Limits)
	b.override(m.overrides[c.ID], m.opt.Limits)
	b.visible, b.certain = m.visible(c.GPUs)
	is := b.bare().GangID()
	m.agree(is)
	if before != is {
		m.agree(before)
	}
}

// adopt begins the tasks of the processes that were seen before their container.
func (m *Core) adopt(b *containerState, now time.Time) {
	for _, p := range m.processes {
		if p.Container == b.ID {
			m.begin(p, now)
			m.updateState(p, now)
		}
	}
}

func (m *Core) remove(id string, now time.Time) {
	if b := m.containers[id]; b != nil {
		delete(m.containers, id)
		m.left[id] = departed{b, now}
		m.agree(b.bare().GangID())
		m.changed = true
	}
}

func (m *Core) setPaused(b *containerState, paused bool, at time.Time) {
	if b.Paused == paused {
		return
	}
	b.Paused, b.pausedAt = paused, at
	m.changed = true
	for _, p := range m.processes {
		if p.open != nil && p.open.ContainerID == b.ID {
			m.updateState(p, at)
		}
	}
}

func sameContainer(a, b container.Container) bool {
	return a.Name == b.Name && a.Image == b.Image && a.Command == b.Command && a.PID == b.PID &&
		a.Paused == b.Paused && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.GPUs, b.GPUs)
}

// Override is what was changed of a container's settings at run time; 0 is the label's.
type Override struct {
	Deadline task.Seconds `json:"deadline_seconds,omitempty"`
	Share    float64      `json:"share_ratio,omitempty"`
	Set      time.Time    `json:"set"`
}

// override replaces what the labels say where a setting was changed. What is beyond the limits
// of today does not count. The default class changes with the deadline.
func (b *containerState) override(o Override, most task.Limits) {
	if o.Deadline > 0 && most.CheckDeadline(o.Deadline.Duration()) == nil {
		b.spec.Deadline = o.Deadline
		if _, ok := b.Labels[task.LabelClass]; !ok {
			b.spec.Class = task.ClassDeadline
		}
	}
	if o.Share > 0 && most.CheckShare(o.Share) == nil {
		b.spec.Share = o.Share
	}
}

// Change changes the settings of a container. A deadline is valid for the container's next
// tasks, and for its unfinished ones from their start: a person who changes it while a task runs
// wants it to count now. It returns the changed container; false for an unknown one.
func (m *Core) Change(id string, c task.Change, now time.Time) (task.Container, bool) {
	b := m.containers[id]
	if b == nil {
		return task.Container{}, false
	}
	o := m.overrides[id]
	o.Set = now
	if c.Deadline != nil {
		o.Deadline = task.SecondsOf(*c.Deadline)
	}
	if c.Share != nil {
		o.Share = *c.Share
	}
	if o.Deadline > 0 || o.Share > 0 {
		m.overrides[id] = o
		m.changes.override(id, &o)
		m.trimOverrides()
	} else {
		delete(m.overrides, id)
		m.changes.override(id, nil)
	}
	m.fill(b, b.Container)
	for _, p := range m.processes {
		if p.open != nil && p.open.ContainerID == id {
			p.open.Deadline = deadline(p.open.Start.Time, b.spec.Deadline)
			m.save(p)
		}
	}
	m.changed = true
	return b.published(), true
}

// trimOverrides forgets the oldest overrides of containers that do not run: the override of a
// container that was removed while the exporter was down remains.
func (m *Core) trimOverrides() {
	for len(m.overrides) > m.opt.MaxOverrides {
		oldest := ""
		for id, o := range m.overrides {
			if m.containers[id] == nil && (oldest == "" || o.Set.Before(m.overrides[oldest].Set)) {
				oldest = id
			}
		}
		if oldest == "" {
			return
		}
		delete(m.overrides, oldest)
		m.changes.override(oldest, nil)
	}
}

// visible resolves the engine's names of a container's GPUs to UUIDs, in the order of the device: in a
// container, too, the driver counts GPUs that way, whatever the order in which they were given. It
// reports whether the result is complete.
func (m *Core) visible(given []string) ([]string, bool) {
	if len(given) == 0 || len(m.gpus) == 0 {
		return nil, false
	}
	named := map[string]bool{}
	complete := true
	for _, want := range given {
		found := m.matching(want)
		if len(found) == 0 {
			complete = false
		}
		for _, uuid := range found {
			named[uuid] = true
		}
	}
	var out []string
	for _, g := range m.gpus {
		if named[g.UUID] {
			out = append(out, g.UUID)
		}
	}
	return out, complete
}

// matching returns the GPUs that one entry names: "all", a UUID, an index, or
// "card:instance". The name of a card with MIG instances means its instances.
func (m *Core) matching(want string) []string {
	var out []string
	cards := map[string]bool{}
	nth := map[int]int{} // MIG instances seen so far, by the card's index
	for _, g := range m.gpus {
		index := strconv.Itoa(g.Index)
		instance := ""
		if g.Parent != "" {
			instance = index + ":" + strconv.Itoa(nth[g.Index])
			nth[g.Index]++
		}
		if want == "all" || want == g.UUID || want == g.Parent || want == index || want == instance {
			out = append(out, g.UUID)
			cards[g.Parent] = true
		}
	}
	return slices.DeleteFunc(out, func(uuid string) bool { return cards[uuid] })
}

func (m *Core) resolveVisible() {
	for _, b := range m.containers {
		b.visible, b.certain = m.visible(b.GPUs)
	}
	for _, p := range m.processes {
		if p.open != nil {
			m.place(p)
		}
	}
}

// guess returns the GPU of a container that can see only one, otherwise the reason why the
// GPU is unknown.
func (m *Core) guess(b *containerState) (gpus []string, reason string) {
	switch {
	case len(m.gpus) == 0:
		reason = "the device has not been read yet"
	case len(m.gpus) == 1:
		return []string{m.gpus[0].UUID}, ""
	case b == nil || !b.certain:
		reason = "not on the device's list, and which of the " + strconv.Itoa(len(m.gpus)) +
			" GPUs its container can see is not known"
	case len(b.visible) == 1:
		return []string{b.visible[0]}, ""
	default:
		reason = "not on the device's list, and its container can see " + strconv.Itoa(len(b.visible)) + " GPUs"
	}
	return []string{task.UnknownGPU}, reason
}

func (b *containerState) published() task.Container {
	return task.Container{
		ID: b.ID, Name: b.Name, Image: b.Image, CommandID: task.CommandID(b.Command), PID: b.PID,
		Started: b.Started, Paused: b.Paused, Spec: b.spec, Invalid: b.invalidLabels(), VisibleGPUs: b.visible,
	}
}

func (m *Core) sortedContainers() []*containerState {
	return slices.SortedFunc(maps.Values(m.containers), func(a, b *containerState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}
