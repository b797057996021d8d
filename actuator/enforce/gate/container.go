package gate

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// container is one that was given to Arbitrate. What is in it is guarded by
// Gate.mu.
type container struct {
	id        string
	admitted  bool
	back      bool      // its processes must not create a context yet
	since     time.Time // of the admission, or of its end
	processes map[int]*process
	looked    bool      // its processes have been looked for
	left      time.Time // when the last of its processes ended; zero: there was none
}

// View is what one container does, as the gate sees it.
type View struct {
	// Phase is empty when none of its processes is under the gate.
	Phase plan.Phase
	// Since is when it entered the phase.
	Since time.Time
	// Admitted: it may launch; AdmittedSince is when that began or ended.
	Admitted      bool
	AdmittedSince time.Time
	// Obstacle says why one of its processes cannot be stopped by the gate; empty
	// if all can.
	Obstacle string
	PIDs     []int
	// Looking: its processes are being looked for.
	Looking bool
	// Still: each of its processes that uses the GPU waits.
	Still bool
	// Back: its processes stop before they create a context; Stands is since when one
	// of them does, zero: none.
	Back   bool
	Stands time.Time
}

// View returns what every container that was given to Arbitrate does, by id.
func (g *Gate) View() map[string]View {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]View, len(g.containers))
	for id, c := range g.containers {
		all[id] = c.view()
	}
	return all
}

func (c *container) view() View {
	v := View{Admitted: c.admitted, AdmittedSince: c.since, Still: len(c.processes) > 0, Back: c.back}
	for _, phase := range phases {
		for _, p := range c.processes {
			if p.phase == phase && (v.Phase == "" || (v.Phase == phase && p.since.Before(v.Since))) {
				v.Phase, v.Since = phase, p.since
			}
		}
	}
	for pid, p := range c.processes {
		v.PIDs = append(v.PIDs, pid)
		v.Still = v.Still && (p.phase == plan.Waiting || !p.stands.IsZero())
		if !p.stands.IsZero() && (v.Stands.IsZero() || p.stands.Before(v.Stands)) {
			v.Stands = p.stands
		}
		if p.obstacle != "" {
			v.Obstacle = fmt.Sprintf("process %d: %s", pid, p.obstacle)
		}
	}
	if len(c.processes) == 0 && !c.left.IsZero() {
		v.Phase, v.Since = plan.Finishing, c.left
	}
	v.Looking = !c.looked
	return v
}

// Arbitrate says which containers are under the gate from now on. Those that were
// not are shut; the processes of those that are not any more go on. It does not
// wait for the probes.
func (g *Gate) Arbitrate(targets []Target) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	wanted := map[string]bool{}
	var fresh []Target
	for _, t := range targets {
		wanted[t.ID] = true
		if g.containers[t.ID] == nil {
			g.containers[t.ID] = &container{id: t.ID, since: g.o.Now(), processes: map[int]*process{}}
			fresh = append(fresh, t)
		}
	}
	for id, c := range g.containers {
		if !wanted[id] {
			for _, p := range c.processes {
				g.remove(p)
			}
			delete(g.containers, id)
		}
	}
	if len(fresh) > 0 {
		g.looking.Go(func() { g.look(fresh) })
	}
}

// look finds the processes of containers, those to come and those that are there.
func (g *Gate) look(fresh []Target) {
	for _, t := range fresh {
		for _, pid := range g.takeEarly(t.ID) {
			g.adoptIn(t.ID, pid, early)
		}
	}
	for _, t := range fresh {
		g.watchStarts(t.PID)
	}
	// After watchStarts, so that no start falls in between.
	for pid := range proc.Loaded(g.o.Proc) {
		id, in, err := g.o.Container(pid)
		if err != nil || !in || !slices.ContainsFunc(fresh, func(t Target) bool { return t.ID == id }) {
			continue
		}
		g.adoptIn(id, pid, loaded)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range fresh {
		if c := g.containers[t.ID]; c != nil {
			c.looked = true
		}
	}
	g.tell()
}

func (g *Gate) adoptIn(id string, pid int, seen since) {
	g.mu.Lock()
	c := g.containers[id]
	g.mu.Unlock()
	if c != nil {
		g.adopt(pid, c, seen)
	}
}

// maxEarly bounds the memory of processes whose containers are not known yet.
const maxEarly = 1024

// keepEarly keeps a process that has called cuInit in a container that was not given
// to Arbitrate: it may be a moment later. It is called with the lock held.
func (g *Gate) keepEarly(id string, pid int) {
	if len(g.waiting) >= maxEarly {
		clear(g.waiting)
	}
	g.waiting[id] = append(g.waiting[id], pid)
}

func (g *Gate) takeEarly(id string) []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	pids := g.waiting[id]
	delete(g.waiting, id)
	return pids
}

// watchStarts puts probes on cuInit in the files of the driver that a container
// can load.
func (g *Gate) watchStarts(pid int) {
	files, err := cudafile.Finder{Proc: g.o.Proc}.Container(pid)
	if err != nil {
		g.o.Logger.Debug("no files of the driver", "pid", pid, "err", err) // it is gone
	}
	g.watch(files)
}

func (g *Gate) watch(files []*cudafile.File) {
	defer cudafile.CloseAll(files)
	for _, f := range files {
		if _, err := g.starts.Add(f); err != nil {
			g.o.Logger.Debug("no probe on a file", "file", f.Path, "err", err)
		}
	}
}

// Admit lets a container launch: those of its processes that wait go on at once.
func (g *Gate) Admit(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.containers[id]
	if c == nil {
		return fmt.Errorf("container %.12s: %w", id, ErrNotGated)
	}
	if !c.admitted {
		c.admitted, c.since = true, g.o.Now()
	}
	c.back = false
	// All marks first: the processes of one container may wait for each other.
	for _, p := range c.processes {
		if p.obstacle != "" {
			continue
		}
		if err := g.kernel.Admit(p.pid); err != nil {
			return err
		}
	}
	for _, p := range c.processes {
		g.note(g.kernel.Forth(p.pid))
		if p.phase == plan.Waiting {
			g.letGo(p)
			g.enter(p, plan.Computing, g.o.Now())
		}
		if !p.stands.IsZero() {
			g.forth(p)
		}
	}
	g.tell()
	return nil
}

// Shut stops a container at its next launch. What it has launched runs to its
// end. It returns ErrNotGated, and has done nothing, where one of its processes
// cannot be stopped like that.
func (g *Gate) Shut(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.containers[id]
	if c == nil {
		return fmt.Errorf("container %.12s: %w", id, ErrNotGated)
	}
	if v := c.view(); v.Obstacle != "" {
		return fmt.Errorf("container %.12s: %w: %s", id, ErrNotGated, v.Obstacle)
	}
	g.shut(c)
	return nil
}

// shut reports whether a process has work under way.
func (g *Gate) shut(c *container) (busy bool) {
	if c.admitted {
		c.admitted, c.since = false, g.o.Now()
	}
	for _, p := range c.processes {
		if p.leaving || p.obstacle != "" {
			continue
		}
		b, err := g.kernel.Shut(p.pid)
		g.note(err)
		busy = busy || (b && !g.kernel.IsHeld(p.pid))
	}
	g.tell()
	return busy
}

// done takes note that a process's launches are through. If it launches again at
// once, it was only between two of them.
func (g *Gate) done(p *process) {
	p.through = g.o.Now()
	if p.phase != plan.Computing || p.lingering {
		return
	}
	p.lingering = true
	time.AfterFunc(g.o.Linger, func() { g.linger(p) })
}

func (g *Gate) linger(p *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.processes[p.pid] != p {
		return
	}
	if rest := g.o.Linger - g.o.Now().Sub(p.through); rest > 0 { // it launches in a loop
		time.AfterFunc(rest, func() { g.linger(p) })
		return
	}
	p.lingering = false
	g.settle(p, p.through)
}

// settle ends the turn of a container whose process has not launched again.
func (g *Gate) settle(p *process, at time.Time) {
	if begun, done, err := g.kernel.Launches(p.pid); err != nil || begun != done || p.phase != plan.Computing {
		g.note(err)
		return
	}
	g.took(at.Sub(p.since))
	g.enter(p, plan.Finishing, at)
	g.rest(p.of)
}

// took takes note of the length of a turn.
func (g *Gate) took(d time.Duration) {
	const weight = 4 // of what was before, to one
	if g.turn == 0 {
		g.turn = d
	}
	g.turn = (weight*g.turn + d) / (weight + 1)
}

// rest ends the admission of a container of whose processes none computes.
func (g *Gate) rest(c *container) {
	if !c.admitted {
		return
	}
	for _, p := range c.processes {
		if p.phase == plan.Computing {
			return
		}
	}
	if !g.shut(c) {
		return
	}
	// One has launched at this very moment, still admitted: its turn goes on.
	c.admitted = true
	for _, p := range c.processes {
		if p.obstacle != "" {
			continue
		}
		g.note(g.kernel.Admit(p.pid))
		g.letGo(p)
		if begun, done, err := g.kernel.Launches(p.pid); err == nil && begun != done {
			g.enter(p, plan.Computing, g.o.Now())
		}
	}
}
