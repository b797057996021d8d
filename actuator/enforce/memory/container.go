package memory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/enforce/stop"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// container is one that was given to Cover. Guard.mu protects its fields.
type container struct {
	Target
	slots     []uint32 // by GPU, in the order of Target.GPUs
	processes map[int]*process
	reading   int               // goroutines that read its files
	attaching bool              // one of them puts probes on its processes
	stuck     bool              // that one hangs
	spent     []cudaprobe.Spent // by slot, when last looked at
	taken     []taken           // by slot
	open      []bool            // by slot: the kernel may pass calls
	stats     Stats
	// unseen is when a call of it last passed for want of a reading, or may have passed as a process of
	// it was missed. Zero once a later reading shows the container within its limit.
	unseen time.Time
}

// Stats count what became of a container's allocations, since it was covered.
type Stats struct {
	// Passed counts calls that the kernel let pass; Granted and Denied, calls that were decided;
	// FailedOpen, calls that ran because they could not be denied or decided.
	Passed, Granted, Denied, FailedOpen uint64
	// Waiting counts calls that are held now.
	Waiting int

	base []cudaprobe.Spent // by slot: what was counted before the container had it
}

// Report is what the guard knows of one container.
type Report struct {
	Stats
	Limit uint64
	// Held is what it holds on each GPU, bytes, calls under way included; nil until the usage was
	// read.
	Held map[string]uint64
	// Obstacle says why one of its processes is not guarded; empty if all are.
	Obstacle string
	// PIDs of its processes that are guarded.
	PIDs []int
}

// Report returns what is known of every container that was given to Cover, by id.
func (g *Guard) Report() map[string]Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]Report, len(g.containers))
	if g.closed {
		return all
	}
	calls, err := g.kernel.Calls()
	g.note(err)
	unseen := map[*container]string{}
	for pid, m := range g.missed {
		unseen[m.of] = fmt.Sprintf("process %d: %s", pid, m.why)
	}
	for id, c := range g.containers {
		v := Report{Stats: c.stats, Limit: c.Limit, Held: map[string]uint64{}, Obstacle: unseen[c]}
		for i, gpu := range c.GPUs {
			if g.usage != nil {
				v.Held[gpu] = g.held(c, i, calls)
			}
			spent, err := g.kernel.Spent(c.slots[i])
			g.note(err)
			v.Passed += spent.Passed - c.stats.base[i].Passed
			v.FailedOpen += spent.Opened - c.stats.base[i].Opened
		}
		for pid, p := range c.processes {
			if p.guarded {
				v.PIDs = append(v.PIDs, pid)
			}
			v.Waiting += len(p.pending)
			if p.obstacle != "" {
				v.Obstacle = fmt.Sprintf("process %d: %s", pid, p.obstacle)
			}
		}
		all[id] = v
	}
	return all
}

// Waits returns why each container's allocation waits, by container id. It does not wait for a
// reading of the usage.
func (g *Guard) Waits() map[string]string {
	if waits := g.waits.Load(); waits != nil {
		return *waits
	}
	return nil
}

// publish sets what Waits returns.
func (g *Guard) publish() {
	waits := map[string]string{}
	for _, p := range g.processes {
		if len(p.pending) > 0 || len(p.decided) > 0 {
			waits[p.of.ID] = cmp.Or(waits[p.of.ID], "its allocation is being decided about")
		}
	}
	for _, q := range g.questions() {
		if q.why != "" {
			waits[g.processes[q.call.PID].of.ID] = "its allocation waits: " + q.why
		}
	}
	g.waits.Store(&waits)
}

// Cover sets which containers are limited from now on. It releases the processes of all others. It
// only hands the targets over to Run, and waits for nothing: its caller decides for everybody. It
// returns false if Run has not taken the targets before these yet.
func (g *Guard) Cover(targets []Target) (taken bool) {
	next := slices.Clone(targets)
	for i := range next {
		next[i].GPUs = slices.Clone(next[i].GPUs)
	}
	taken = g.targets.Swap(&next) == nil
	notify(g.handed)
	return taken
}

// cover takes the targets that were handed over last.
func (g *Guard) cover() {
	g.mu.Lock()
	defer g.mu.Unlock()
	targets := g.targets.Swap(nil)
	if g.closed || targets == nil {
		return
	}
	wanted := map[string]bool{}
	var fresh []*container
	for _, t := range *targets {
		wanted[t.ID] = true
		c := g.containers[t.ID]
		switch {
		case c == nil:
			if c = g.newContainer(t); c != nil {
				fresh = append(fresh, c)
			}
		case !slices.Equal(c.GPUs, t.GPUs):
			g.uncover(c)
			if c = g.newContainer(t); c != nil {
				fresh = append(fresh, c)
			}
		case c.Limit != t.Limit:
			c.Limit = t.Limit
			g.refresh(c, g.calls())
		}
	}
	for id, c := range g.containers {
		if !wanted[id] {
			g.uncover(c)
		}
	}
	if len(fresh) > 0 {
		g.looking.Go(func() { g.look(fresh) })
	}
}

func (g *Guard) newContainer(t Target) *container {
	c := &container{Target: t, processes: map[int]*process{}, unseen: g.o.Now()} // perhaps it had other GPUs, which could not be read
	for range c.GPUs {
		slot, ok := g.slots.take()
		if !ok {
			g.free(c)
			g.o.Failed(t.ID, "too many limited containers for the memory guard")
			return nil
		}
		spent, err := g.kernel.Spent(slot)
		g.note(err)
		c.slots = append(c.slots, slot)
		c.spent = append(c.spent, spent)
		c.taken = append(c.taken, taken{spent: spent.Got()})
		c.open = append(c.open, false)
		c.stats.base = append(c.stats.base, spent)
	}
	if len(c.GPUs) == 0 {
		g.o.Failed(t.ID, "nobody knows which GPUs it sees")
		return nil
	}
	g.containers[t.ID] = c
	g.refresh(c, g.calls())
	return c
}

func (g *Guard) uncover(c *container) {
	for _, p := range c.processes {
		g.remove(p)
	}
	g.free(c)
	delete(g.containers, c.ID)
}

func (g *Guard) free(c *container) {
	for _, slot := range c.slots {
		g.note(g.kernel.SetBudget(slot, cudaprobe.Budget{}))
		g.slots.give(slot)
	}
}

// look finds the processes of containers: it watches for new ones, then lists the present ones.
func (g *Guard) look(fresh []*container) {
	searched := make(chan *container, len(fresh))
	g.mu.Lock()
	for _, c := range fresh {
		early := g.early[c.ID]
		delete(g.early, c.ID)
		for _, pid := range early { // at once: they may be about to allocate
			g.adopt(pid, c, true)
		}
		g.read(c, func() { g.onHang(c) }, func(func()) {
			g.search(c)
			searched <- c
		})
	}
	g.mu.Unlock()
	left, timeout := len(fresh), time.After(together)
	for waits := true; waits && left > 0; {
		select {
		case <-searched:
			left--
		case <-timeout:
			waits = false
		case <-g.ending:
			return
		}
	}
	g.list(fresh) // after the search, so that no start falls in between
	for ; left > 0; left-- {
		select {
		case c := <-searched:
			g.list([]*container{c})
		case <-g.ending:
			return
		}
	}
}

// search watches the files of the driver that processes of a container may load.
func (g *Guard) search(c *container) {
	files, err := cudafile.Finder{Proc: g.o.Proc}.Container(c.PID)
	if err != nil {
		g.o.Logger.Debug("no files of the driver", "pid", c.PID, "err", err) // it is gone
	}
	g.watch(files)
}

// list adopts the present processes of containers, a moment later.
func (g *Guard) list(fresh []*container) {
	members, err := proc.Members(g.o.Proc, func(pid int) (*container, bool) {
		id, in, err := g.o.Container(pid)
		if err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.miss(pid, nil, false, err)
			return nil, false
		}
		i := slices.IndexFunc(fresh, func(c *container) bool { return c.ID == id })
		if !in || i < 0 {
			return nil, false
		}
		return fresh[i], true
	})
	if err != nil {
		g.o.Logger.Warn("cannot list the processes of containers", "err", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for c, pids := range members {
		g.read(c, func() { g.onHang(c) }, func(func()) { g.inspect(c, pids) })
	}
}

// inspect adopts the processes of a container that have loaded the driver.
func (g *Guard) inspect(c *container, pids []int) {
	err := proc.Search{Proc: g.o.Proc}.Loaded(pids, func(pid int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.adopt(pid, c, false)
	})
	if err != nil {
		g.o.Logger.Warn("cannot inspect all processes of a container", "container", c.ID, "err", err)
	}
}

// watch puts probes on cuInit in files of the driver.
func (g *Guard) watch(files []*cudafile.File) {
	defer cudafile.CloseAll(files)
	for _, f := range files {
		if _, err := g.starts.Add(f); err != nil {
			g.o.Logger.Debug("no probe on a file", "file", f.Path, "err", err)
		}
	}
}

// process is one process of a limited container.
type process struct {
	pid, pidfd int
	start      uint64 // hundredths of a second since boot
	opened     *stop.Process
	of         *container
	due        uint64                 // its probes are to be put on; in this order
	starts     bool                   // it may be about to allocate: it has just called cuInit
	attaching  bool                   // they are being put on
	missed     bool                   // it could not be looked at, and its probes are not there yet
	guarded    bool                   // its probes are there
	following  time.Time              // since when those that follow its graphs are to be put on; zero: they are not
	followed   bool                   // they are there
	unfollowed error                  // why they are not
	obstacle   string                 // why it is not guarded; empty as a rule
	pending    map[stop.Key]*question // its calls that are held
	decided    map[stop.Key]bool      // decided holds; they end together
	asked      bool                   // a call of it was decided: all that it had when we began to guard it was shown
	halting    time.Time              // since when we wait for its threads to stop
	epoch      uint64                 // the program that runs in it, see cudaprobe.Totals
	most       uint64                 // the largest usage seen, over all GPUs
	graphs     uint64                 // bytes that its graphs will get at their launch
	made, seen uint64                 // contexts that it made, and one that it may have; contexts that the usage shows
	order      order                  // how it counts its container's GPUs, as far as is certain
	shown      shown                  // what its contexts have shown of that
	on         uint32                 // bit set of those on which it made a context, as it counts them
	// By GPU of the container: when it began without a context, and when it was last granted memory.
	// Zero once the usage lists it.
	began time.Time
	took  []time.Time
}

// is reports whether a hold belongs to the process.
func (p *process) is(h stop.Hold) bool {
	return h.PID == p.pid && proc.Stat{Start: p.start}.Began(h.Start)
}

func (p *process) alive() bool { return !proc.Ended(p.pidfd) }

func (p *process) answered(q *question) {
	p.drop(q)
	p.asked = p.asked || !q.call.Question()
}

// drop takes a call from those that wait for an answer. Its hold may end.
func (p *process) drop(q *question) {
	k := stop.Key{PID: q.call.PID, TID: q.call.TID, At: q.call.At}
	delete(p.pending, k)
	p.decided[k] = true
}

// adopt guards a process, a moment later. The process may belong to any container, or have ended. For a
// process that is guarded already only files of the driver count that the process has loaded since. starts: it
// has just called cuInit.
func (g *Guard) adopt(pid int, c *container, starts bool) {
	p, err := g.enlist(pid, c)
	if err != nil {
		g.miss(pid, c, starts, err)
		return
	}
	_, missed := g.missed[pid]
	delete(g.missed, pid)
	if p == nil {
		return
	}
	p.missed = p.missed || missed && !p.guarded
	if p.due == 0 {
		g.dues++
		p.due = g.dues
	}
	p.starts = p.starts || starts
	if c.stuck {
		p.waits()
	}
	g.attach(c)
}

// waits notes that a process waits behind one whose files hang.
func (p *process) waits() {
	if !p.guarded {
		p.obstacle = errFileHangs.Error()
	}
}

// enlist adds a process. It returns nil if the process is not in the container, or must not be
// guarded. An error says why that is not known, or that the process is gone.
func (g *Guard) enlist(pid int, c *container) (*process, error) {
	if g.closed || g.containers[c.ID] != c {
		return nil, nil //nolint:nilnil // it is not to be guarded
	}
	if p := g.processes[pid]; p != nil && p.alive() {
		if p.obstacle != "" && p.due == 0 && !p.attaching || p.of != c {
			return nil, nil //nolint:nilnil // it is not to be guarded
		}
		return p, nil
	} else if p != nil {
		g.remove(p) // another process has its PID
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	// If the process behind the pidfd is still alive afterwards, what we read of the PID is about
	// it.
	id, in, err := g.o.Container(pid)
	stat, ok := proc.ReadStat(g.o.Proc, pid)
	obstacle := proc.Obstacle(g.o.Proc, pid)
	switch {
	case proc.Ended(pidfd), err == nil && (!in || id != c.ID):
		_ = unix.Close(pidfd)
		return nil, nil //nolint:nilnil // it is not to be guarded
	case err == nil && !ok:
		err = errors.New("read when it started")
	case err == nil:
		if err = g.exits.Add(pid, pidfd); err != nil {
			err = fmt.Errorf("watch for its end: %w", err)
		}
	}
	if err != nil {
		_ = unix.Close(pidfd)
		return nil, err
	}
	p := &process{
		pid: pid, pidfd: pidfd, start: stat.Start, opened: stop.Of(g.o.Proc, pid, pidfd), of: c,
		pending: map[stop.Key]*question{}, decided: map[stop.Key]bool{}, took: make([]time.Time, len(c.GPUs)),
		order: asGiven(len(c.GPUs)), shown: shown{order: asGiven(len(c.GPUs))},
	}
	g.processes[pid], c.processes[pid] = p, p
	if obstacle != "" {
		g.exclude(p, obstacle)
		return nil, nil //nolint:nilnil // it must not be guarded
	}
	on := g.contexts(c, pid)
	if on == 0 {
		p.began = g.o.Now()
	}
	p.shown.late = on != 0
	// It may be making a context now, of which the usage shows a part: its first call is asked about.
	err = g.kernel.Enlist(cudaprobe.Guarded{PID: pid, Start: p.start, Slots: c.slots, Context: g.o.Context, On: on, Made: 1})
	if err != nil {
		g.exclude(p, err.Error())
		return nil, nil //nolint:nilnil // it cannot be guarded
	}
	return p, nil
}

// exclude leaves a process unguarded.
func (g *Guard) exclude(p *process, why string) {
	p.obstacle = why
	g.o.Logger.Warn("the memory of a process cannot be guarded", "pid", p.pid, "container", p.of.ID, "why", why)
	g.o.Failed(p.of.ID, why)
}

// remove ends the guarding of a process: its allocations pass from then on.
func (g *Guard) remove(p *process) {
	if g.processes[p.pid] != p {
		return
	}
	delete(g.processes, p.pid)
	delete(p.of.processes, p.pid)
	g.kernel.Drop(p.pid)
	// A hold that begins at this moment is found on the record by the next step.
	if p.alive() {
		g.endAllOf(p)
	} else {
		g.forget(p.pid)
	}
	g.exits.Remove(p.pidfd)
	_ = unix.Close(p.pidfd)
	notify(g.again)
}

// note logs an error that should not happen and that nobody can act on.
func (g *Guard) note(err error) {
	if err != nil && !g.closed {
		g.o.Logger.Error("memory guard", "err", err)
	}
}

// slots are the numbers of free budgets.
type slots struct {
	used uint32
	back []uint32
}

func (s *slots) take() (uint32, bool) {
	if n := len(s.back); n > 0 {
		slot := s.back[n-1]
		s.back = s.back[:n-1]
		return slot, true
	}
	if s.used == cudaprobe.Slots {
		return 0, false
	}
	s.used++
	return s.used - 1, true
}

func (s *slots) give(slot uint32) { s.back = append(s.back, slot) }
