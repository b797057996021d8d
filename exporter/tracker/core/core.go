// Package core is the tracker's core, a pure state machine: it turns the reports of
// device, container engine and sensors into tasks. Every input carries its time. Nothing here
// reads a clock, a file or a socket, so that tables can test each rule of a task's life.
//
// It imports the standard library, exporter/task, exporter/account, exporter/device,
// exporter/container and exporter/sensor. Of the last three it takes plain types only.
//
// Inputs are methods (Device, Cards, Containers, Container, Sensor, Exit, …). Outputs
// are taken after each input: Snapshot, TakeFacts (what began and ended) and
// TakeChanges (what must survive a restart). A Core is for one goroutine.
package core

import (
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/task"
)

// Options are the core's constants. Zero values take the defaults.
type Options struct {
	Node string
	// Run names this run of the exporter in snapshots.
	Run string
	// BusyGap closes a busy interval (laxity.release=busy) when nothing was launched for this
	// long after work was done. Default DefaultBusyGap.
	BusyGap time.Duration
	// MaxEnded bounds the history of ended tasks. The latest task of each running container
	// is kept besides, and that of as many containers that are gone. Default 100.
	MaxEnded int
	// MaxOverrides bounds for how many containers settings changed at run time are kept. Default 1000.
	MaxOverrides int
	// Limits bound what containers may claim.
	Limits task.Limits
}

// DefaultBusyGap is less than the usual pause between two requests.
const DefaultBusyGap = 10 * time.Millisecond

const (
	// initWindow: a cuInit at most this long before the context call is the
	// start of the task; an older one was an availability check.
	initWindow = 2 * time.Second
	// listLag is how late the device's process list is at most. It widens the error bound of
	// starts that are known from the list alone. 125–210 ms were measured with NVML.
	listLag = 250 * time.Millisecond
	// unlistedLimit ends a task whose context call was seen but which a healthy device never
	// listed: the call failed, or the context was gone before the device was read. Without
	// this limit a failed context call would count as a running task until the process exits.
	unlistedLimit = 10 * time.Second
	// unknownLimit is how long a process that has exited waits for what would make it a task:
	// its container, or a late event. The core remembers an ended container for as long.
	// The tracker asks the engine for an unknown container for as long.
	unknownLimit = 10 * time.Second
	// endLimit is how long a process that had exited before its first event was read waits
	// for the event that says when.
	endLimit = time.Second
)

func (o *Options) setDefaults() {
	if o.BusyGap <= 0 {
		o.BusyGap = DefaultBusyGap
	}
	if o.MaxEnded <= 0 {
		o.MaxEnded = 100
	}
	if o.MaxOverrides <= 0 {
		o.MaxOverrides = 1000
	}
}

// Subject is a process whose identity and container were learned without a
// race: watched by pidfd, then read, then found alive.
type Subject struct {
	sensor.Process
	// Container is the id that its cgroup names; empty for a host process.
	Container string
	// MPSServer: it is an MPS server, which computes for its clients. The GPU work is theirs: it has no
	// task, and belongs to no container.
	MPSServer bool
	// Born is when the process began; zero where it is not known.
	Born time.Time
	// Started is the same since boot, in steps in which two processes with this PID differ; 0
	// where it is not known.
	Started time.Duration
}

// Core holds everything known about one node.
type Core struct {
	opt Options

	processes  map[string]*process        // by identity
	byPID      map[int]*process           // the latest process with this PID
	containers map[string]*containerState // by id; running or paused ones
	listed     bool                       // the engine has listed its containers
	late
	overrides map[string]Override // by container id
	off       map[int]time.Duration
	history   history

	gpus         []device.GPU
	lastReading  time.Time            // of the last reading that succeeded
	triedAt      time.Time            // when the last one ended, whether it succeeded or not
	listedAt     map[string]time.Time // when the list of a GPU was last read
	health       task.Health
	unattributed map[string]int
	sensorChosen bool // it is known how starts are learned
	busyTracking bool // the start sensor reports launches

	cards cards

	sequence uint64
	changed  bool // a fact changed since the last snapshot
	measured bool // only a measurement changed
	turned   bool // a task went off the GPU or on, and readers need not be woken for it
	facts    []Fact
	changes  Changes
	ended    []task.Task // published form of history; replaced, never edited
}

// New returns a core that knows nothing yet.
func New(opt Options) *Core {
	opt.setDefaults()
	return &Core{
		opt:        opt,
		processes:  map[string]*process{},
		byPID:      map[int]*process{},
		containers: map[string]*containerState{},
		late:       newLate(),
		overrides:  map[string]Override{},
		listedAt:   map[string]time.Time{},
		cards:      newCards(),
		changed:    true,
		ended:      []task.Task{},
		health: task.Health{
			DeviceError: "the device has not been read yet",
			EngineError: "the container engine has not been asked yet",
			Sensor:      task.SourceDevice,
		},
	}
}

// Known returns the process that was met under this PID and has not exited.
func (m *Core) Known(pid int) (Subject, bool) {
	if p := m.byPID[pid]; p != nil {
		return p.Subject, true
	}
	return Subject{}, false
}

// Exited reports whether a process that was met has exited and waits for what may make it a
// task.
func (m *Core) Exited(of sensor.Process) bool {
	p := m.processes[of.Identity]
	return p != nil && p.gone != nil
}

// Processes returns the processes that were met and have not exited, in no order.
func (m *Core) Processes() []sensor.Process {
	var all []sensor.Process
	for _, p := range m.processes {
		if p.gone == nil {
			all = append(all, p.Process)
		}
	}
	return all
}

// Meet introduces a process, or corrects what is known of it. A new identity under an old PID
// takes the PID over. The old process ends with its own Exit.
func (m *Core) Meet(s Subject) {
	p := m.processes[s.Identity]
	if p == nil {
		p = &process{on: map[string]use{}}
		m.processes[s.Identity] = p
	}
	p.Subject = s
	p.off = m.isOff(p)
	m.byPID[s.PID] = p
}

// Met reports whether this process was met and is not forgotten.
func (m *Core) Met(p sensor.Process) bool { return m.processes[p.Identity] != nil }

// Sensor takes one event of the start sensor, of a process that was met.
func (m *Core) Sensor(of sensor.Process, ev sensor.Event) {
	p := m.processes[of.Identity]
	if p == nil {
		return
	}
	if p.vague {
		p.gone.ErrorBound = task.SecondsOf(max(0, p.gone.Time.Sub(ev.Time)) + ev.ErrorBound)
	}
	mark := task.Mark{Time: ev.Time, Source: ev.Source, ErrorBound: task.SecondsOf(ev.ErrorBound)}
	switch ev.Kind {
	case sensor.LibraryOpened:
		setOnce(&p.opened, mark)
	case sensor.Init:
		setOnce(&p.inited, mark) // called several times by one process: the first counts
	case sensor.ContextMade:
		m.contextMade(p, mark)
	case sensor.Launched:
		m.launched(p, mark)
	case sensor.WorkDone:
		m.workDone(p, mark)
	case sensor.Leaving:
		p.leaving = &mark
		return
	case sensor.Left:
		p.leaving, p.left = nil, &mark
		return
	case sensor.Exiting:
		m.exiting(p, mark)
		return
	}
	m.refine(p)
	m.begin(p, ev.Time)
}

// Exit takes the end of a process.
func (m *Core) Exit(x sensor.Exit) {
	p := m.processes[x.Process.Identity]
	if p == nil {
		return
	}
	mark := task.Mark{Time: x.Time, Source: task.SourcePidfd, ErrorBound: task.SecondsOf(x.ErrorBound)}
	if p.exiting != nil {
		mark = *p.exiting
	}
	switch {
	case p.closed:
	case p.open != nil:
		m.end(p, task.Ended, mark)
	case p.Container != "" && p.touched():
		// A short task can be over before the engine reports its container, or before the
		// event of its context call arrives. The process stays for a while, so that the task
		// is counted.
		p.gone, p.goneAt = &mark, x.Time
		clear(p.on)
		if p.context != nil && p.number == 0 && !p.followed {
			p.unfollowed = true // it ended before the sensor could follow its launches
			m.begin(p, x.Time)
		}
		return
	}
	m.discard(p)
}

// exiting notes that a process begins to exit. The core remembers that until the exit
// itself, so that the device's list does not make a new task in between.
func (m *Core) exiting(p *process, mark task.Mark) {
	if p.exiting != nil {
		return
	}
	p.exiting = &mark
	switch {
	case p.open != nil:
		p.closed = true
		m.end(p, task.Ended, mark)
	case p.vague:
		p.gone, p.vague = &mark, false
		m.begin(p, mark.Time)
	}
}

func (m *Core) discard(p *process) {
	if m.byPID[p.PID] == p {
		delete(m.byPID, p.PID)
	}
	if m.byPID[p.PID] == nil { // the next reading has samples of it
		m.noteOwner(p, time.Time{})
	}
	delete(m.processes, p.Identity)
	m.counted(p)
}

// Stopped notes whether a process is stopped by a signal (state T).
func (m *Core) Stopped(identity string, stopped bool, now time.Time) {
	if p := m.processes[identity]; p != nil && p.stopped != stopped {
		p.stopped = stopped
		m.updateState(p, now)
	}
}

// Tick does what is due by time alone.
func (m *Core) Tick(now time.Time) {
	for _, p := range m.processes {
		if p.vague && now.Sub(p.goneAt) > endLimit {
			p.vague = false
			m.begin(p, now)
		}
		if p.gone != nil && now.Sub(p.goneAt) > unknownLimit {
			if p.worked() {
				m.facts = append(m.facts, Fact{Kind: Missed, Task: task.Task{PID: p.PID, ContainerID: p.Container}})
			}
			m.discard(p)
			continue
		}
		if p.strangeAt.IsZero() && m.stranger(p) {
			p.strangeAt = now
		}
		p.foreign = !p.strangeAt.IsZero() && now.Sub(p.strangeAt) > unknownLimit
		if o := p.open; o != nil && o.doubtful {
			o.doubtful = false
			o.lapse = lapseAfter(o.Start.Time, now)
		}
		m.loseBusy(p, now)
		m.tellTurn(p, now)
	}
	m.forgetOld(now, unknownLimit)
	m.cards.forgetOwners(now)
}

// SensorInUse notes how starts are learned from now on, and whether the sensor can report
// launches, which laxity.release=busy needs.
func (m *Core) SensorInUse(source task.Source, reason string, busy bool) {
	if m.sensorChosen && busy && !m.busyTracking {
		m.doubtIntervals()
	}
	m.sensorChosen = true
	if m.health.Sensor != source || m.health.SensorReason != reason || m.busyTracking != busy {
		m.health.Sensor, m.health.SensorReason, m.busyTracking = source, reason, busy
		m.changed = true
	}
}

// SensorLost notes how many events the start sensors have dropped for want of room so far.
func (m *Core) SensorLost(total uint64) {
	if m.health.EventsLost != total {
		m.health.EventsLost, m.changed = total, true
	}
}

// EngineDown notes that the container engine does not answer. Its containers stay as they
// were last known.
func (m *Core) EngineDown(reason string) {
	if m.health.EngineUp || m.health.EngineError != reason {
		m.health.EngineUp, m.health.EngineError = false, reason
		m.changed = true
	}
}

// setOnce keeps the first mark.
func setOnce(to **task.Mark, mark task.Mark) {
	if *to == nil {
		*to = &mark
	}
}
