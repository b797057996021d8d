package core

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// use is what one process holds on one GPU.
type use struct {
	memory uint64
	sm     float64 // NaN: not known
	mps    bool    // through an MPS server
	// stale: the GPU has not answered for so long that memory and sm do not count any more.
	stale bool
}

// process is one process that touched CUDA or that the device listed.
type process struct {
	Subject
	// Events since the process was met, or since its last task ended.
	opened, inited, context *task.Mark
	seen                    *task.Mark // the device's first sight
	// launch and done bound a busy interval (laxity.release=busy).
	launch, done *task.Mark
	launchedAt   time.Time // the latest launch after idle
	// on has the GPUs that list it, as far as they could be read.
	on          map[string]use
	listedAt    time.Time // the last reading that listed it
	stopped     bool
	inspectedAt time.Time // when stopped was last read
	// off: its channels are off the GPU.
	off bool
	// noticed: a notice says that it is swapped, or is being swapped; last at noticedAt.
	noticed   bool
	noticedAt time.Time
	// gone: it exited, which was learned at goneAt, and waits for its container or a late
	// event. vague: it is not known yet when it exited, only that it was before goneAt.
	gone   *task.Mark
	goneAt time.Time
	vague  bool
	unseen bool // it had exited before its first event was read
	// followed: the sensor reports its launches. unfollowed: the sensor does not, and will
	// not.
	followed, unfollowed bool
	// strangeAt is when we first found that the engine has not reported its container.
	// foreign: the container seems to be another engine's.
	strangeAt time.Time
	foreign   bool
	// exiting is when it began to exit, if an event reported that. This is its end: the GPU
	// computes nothing for it any more. closed: its last task ended so. The device lists it
	// until the driver has freed what it held.
	exiting *task.Mark
	// vanishing is when the first reading without it found that it exits; zero: none did.
	vanishing time.Time
	// leaving is when it began the call that destroys a context, until that returns. left is
	// when the last such call returned. The driver takes about 60 ms for it, and drops the
	// process from its list at some moment in between.
	leaving, left *task.Mark
	// again is its first context call after left, while its task was open. It belongs to the
	// next task if the device shows that the process had left.
	again  *task.Mark
	closed bool
	open   *openTask
	number int64 // of the last task, in its id
}

// openTask is the unfinished task of a process.
type openTask struct {
	task.Task
	listed   bool            // the device has listed it
	used     map[string]bool // every GPU that ever listed it
	reported map[string]bool // GPUs whose Began was reported
	// waited is how long a healthy device did not list a task that was free to run. checked
	// is when waited was last brought up to date.
	waited   time.Duration
	checked  time.Time
	restored bool // not seen on the device since the exporter came back
	// turnAt is when it last went off the GPU or on and readers were woken for it. turned: it
	// has done so since, and they were not.
	turnAt time.Time
	turned bool
	// lapse is the end of a restored task if it ended while the exporter, or its probes on
	// launches, were away. doubtful: the next Tick sets lapse.
	lapse *task.Mark
	// away is how long the exporter was, of a restored task.
	away     time.Duration
	doubtful bool
}

// touched reports whether it has begun to use CUDA in some way.
func (p *process) touched() bool {
	return p.opened != nil || p.inited != nil || p.worked()
}

// worked reports whether it did GPU work or holds a context, so that it is a task.
func (p *process) worked() bool { return p.context != nil || p.seen != nil || p.launch != nil }

// forget clears the events of the task that ended. A later context of the same process is a
// new task with its own start.
func (p *process) forget() {
	p.opened, p.inited, p.context, p.seen, p.launch, p.done = nil, nil, nil, nil, nil, nil
	p.launchedAt = time.Time{}
	p.open = nil
}

// contextMade takes a context call. The call with which a process comes back may arrive
// before the device has shown that the process was away.
func (m *Core) contextMade(p *process, mark task.Mark) {
	setOnce(&p.context, mark)
	if p.open != nil && p.left != nil && !mark.Time.Before(p.left.Time) && (p.again == nil || p.again.Time.Before(p.left.Time)) {
		p.again = &mark
	}
}

// start returns the start of the task. That is the cuInit if it came at most window before
// the context call, else the context call, else the device's first sight. An open of the
// library counts as a cuInit that no sensor saw: a program that loads it lazily does so in
// its first CUDA call.
func (p *process) start(window time.Duration) (task.Mark, bool) {
	at := p.context
	if at == nil {
		at = p.seen
	}
	if at == nil {
		return task.Mark{}, false
	}
	first := p.inited
	if first == nil {
		first = p.opened
	}
	if first != nil && !first.Time.After(at.Time) && at.Time.Sub(first.Time) <= window {
		return *first, true
	}
	return *at, true
}

// begin opens a task if the process has done GPU work and its container is known. If the
// process has exited in the meantime, it ends the task at once.
func (m *Core) begin(p *process, now time.Time) {
	b := m.container(p.Container)
	if p.MPSServer || p.open != nil || p.closed || p.vague || p.Container == "" || b == nil || !p.worked() {
		return
	}
	var start task.Mark
	if m.byInterval(b) && !p.unseen && !p.unfollowed { // whose launches nobody followed
		if p.launch == nil {
			return
		}
		start = *p.launch
	} else {
		var ok bool
		if start, ok = p.start(initWindow); !ok {
			return
		}
	}
	m.openWith(p, b, start, now)
	if p.gone != nil {
		m.end(p, task.Ended, *p.gone)
		m.discard(p)
	}
}

func (m *Core) openWith(p *process, b *containerState, start task.Mark, now time.Time) {
	// Each task of one process gets an id of its own, also when the clock has not moved on.
	p.number = max(p.number+1, start.Time.UnixMicro())
	p.open = &openTask{
		Task: task.Task{
			ID:          p.Identity + "@" + strconv.FormatInt(p.number, 36),
			PID:         p.PID,
			Container:   b.Name,
			ContainerID: b.ID,
			Image:       b.Image,
			State:       task.Running,
			Start:       start,
			Deadline:    deadline(start.Time, b.spec.Deadline),
			StateSince:  start.Time,
		},
		used:     map[string]bool{},
		reported: map[string]bool{},
		checked:  now,
	}
	b.worked = true
	m.changes.begun(p.open.ID)
	m.place(p)
	m.updateState(p, now)
	m.save(p)
	m.changed = true
}

func deadline(start time.Time, relative task.Seconds) time.Time {
	if relative <= 0 {
		return time.Time{}
	}
	return start.Add(relative.Duration())
}

// refine corrects a start that is known from the device's list alone, when the exact event
// comes after the list.
func (m *Core) refine(p *process) {
	if p.open == nil || p.open.Start.Source != task.SourceDevice || p.open.restored || p.context == nil {
		return
	}
	start, _ := p.start(initWindow)
	if !start.Time.Before(p.open.Start.Time) {
		return
	}
	shift := start.Time.Sub(p.open.Start.Time)
	if p.open.HasDeadline() {
		p.open.Deadline = p.open.Deadline.Add(shift)
	}
	if p.open.StateSince.Equal(p.open.Start.Time) {
		p.open.StateSince = start.Time
	}
	p.open.Start = start
	m.save(p)
	m.changed = true
}

// place sets the GPUs of the open task: those that the device lists, else the only one that
// the container can see, else unknown with a reason.
func (m *Core) place(p *process) {
	o := p.open
	var gpus []string
	reason, moved := "", false
	switch {
	case len(p.on) > 0:
		for uuid := range p.on {
			gpus = append(gpus, uuid)
			moved = moved || !o.used[uuid]
			o.used[uuid] = true
		}
		slices.Sort(gpus)
		o.listed, o.restored = true, false
	case o.listed || o.restored:
		return // off the list: the known GPUs stay
	default:
		gpus, reason = m.guess(m.container(o.ContainerID))
	}
	if moved || !slices.Equal(gpus, o.GPUs) || reason != o.GPUReason {
		o.GPUs, o.GPUReason = gpus, reason
		m.changed = true
		m.save(p)
	}
	for _, uuid := range gpus {
		if uuid != task.UnknownGPU {
			m.reportBegan(o, uuid)
		}
	}
}

// end closes the open task.
func (m *Core) end(p *process, state task.State, mark task.Mark) {
	o := p.open
	if state == task.Ended && m.rests(p) && p.done.Time.Before(mark.Time) {
		mark = *p.done // what ends the process or its context within the gap is not its work
	}
	if mark.Time.Before(o.Start.Time) {
		mark.Time = o.Start.Time // clocks of two sensors may differ by a moment
	}
	o.stay(mark.Time)
	o.State, o.StateSince, o.End = state, mark.Time, &mark
	// A busy interval ended when its work was done, which we learn later. Waiting in between
	// does not belong to it.
	life := task.SecondsOf(mark.Time.Sub(o.Start.Time))
	o.HeldSeconds = min(o.HeldSeconds, life)
	o.PausedSeconds = min(o.PausedSeconds, life-o.HeldSeconds)
	o.SwappedSeconds = min(o.SwappedSeconds, life-o.HeldSeconds-o.PausedSeconds)
	o.MemoryUsed = nil
	if len(o.used) > 0 {
		o.GPUs, o.GPUReason = nil, ""
		for uuid := range o.used {
			o.GPUs = append(o.GPUs, uuid)
		}
		slices.Sort(o.GPUs)
	}
	for _, uuid := range o.GPUs {
		m.reportBegan(o, uuid)
	}
	m.facts = append(m.facts, Fact{Kind: Ended, Task: o.Task})
	m.history.add(o.Task)
	m.changes.close(o.Task)
	m.trimHistory() // which may drop this one
	m.changed = true
	p.forget()
	if p.again != nil && !p.again.Time.Before(mark.Time) {
		p.context = p.again
	}
	p.again = nil
}

// reportBegan reports once that the task began on the GPU. Its callers wait until the GPU is
// known, so that the counts carry the right label.
func (m *Core) reportBegan(o *openTask, uuid string) {
	if o.reported[uuid] {
		return
	}
	o.reported[uuid] = true
	m.facts = append(m.facts, Fact{Kind: Began, Task: o.Task, GPU: uuid})
}

// openTasks returns the processes with unfinished tasks, oldest start first.
func (m *Core) openTasks() []*process {
	var out []*process
	for _, p := range m.processes {
		if p.open != nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *process) int {
		return cmp.Or(a.open.Start.Time.Compare(b.open.Start.Time), cmp.Compare(a.open.ID, b.open.ID))
	})
	return out
}
