package cudaprobe

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudabpf"
)

// maxTrials is how often in a row a process counts as fast at its first launch, before it has to
// prove it again. So removing and attaching its probe costs a process that has become slow a few
// ms, and a fast one pays for few launches.
const maxTrials = 8

// unwatched is a tracked process that launches fast. Times are of CLOCK_MONOTONIC.
type unwatched struct {
	since time.Duration // the launch that showed it
	from  time.Duration // when attaching its probe began again; 0: it has not
	armed time.Duration // when it was attached; 0: it is not
	base  uint64        // launches when it was armed
	moved bool          // the last look found more
	due   time.Duration // when to look at it
}

// arming is about probes that are being attached, which takes the kernel up to 10 ms, or longer where it
// must read the file.
type arming struct {
	unwanted bool // the process has launched fast meanwhile
	gone     bool // it is not tracked any more
}

// launched handles a launch, and returns the events to report.
func (p *Probe) launched(e Event) (told []Event) {
	isFast, returned := e.Kind == launchedFast, e.returned
	e.Kind, e.returned = Launched, 0
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tracked[e.PID]
	if t == nil || p.closed {
		return []Event{e}
	}
	if u := t.unwatched; u != nil && u.from != 0 && u.from <= e.at {
		// All work before may have ended long ago. How long ago is for others to judge.
		if returned > u.since && !p.calling(e.PID) {
			told = append(told, doneAt(e.PID, returned))
		}
		t.unwatched = nil
	}
	if isFast && !t.trial {
		t.trials = 0
	}
	t.trial = false
	if isFast {
		p.unwatch(e, t)
	}
	return append(told, e)
}

// unwatch removes the probe from the launches of a process.
func (p *Probe) unwatch(e Event, t *tracked) {
	var state cudabpf.LaunchesBusy
	if err := p.launches.BusyOf.Lookup(uint32(e.PID), &state); err != nil || state.Pace != cudabpf.LaunchesPaceFAST {
		return // it was another process with the same PID
	}
	p.detach(t.launches)
	t.launches = nil
	if t.arming != nil {
		t.arming.unwanted = true
	}
	t.unwatched = &unwatched{since: e.at}
	p.schedule(t.unwatched, monotonic()+p.quiet/2)
}

// schedule has a process inspected at a time, or a little later together with others.
func (p *Probe) schedule(u *unwatched, at time.Duration) {
	grain := p.quiet / 8
	u.due = (at + grain - 1) / grain * grain
	p.remind(u.due)
}

func (p *Probe) remind(at time.Duration) {
	if p.lookAt == 0 || at < p.lookAt {
		p.lookAt = at
	}
}

// deadline is how long the reader may wait: it counts whole milliseconds, rounded down.
func (p *Probe) deadline() time.Time {
	if p.lookAt == 0 {
		return time.Time{}
	}
	return time.Now().Add(p.lookAt - monotonic() + time.Millisecond)
}

// lookIfDue inspects the processes that are due. Next calls it when all events have been read.
func (p *Probe) lookIfDue() {
	if p.lookAt == 0 || monotonic() < p.lookAt {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookAt = 0
	if p.closed {
		return
	}
	for pid, t := range p.tracked {
		switch u := t.unwatched; {
		case u == nil:
		case ended(t.pidfd):
			t.unwatched = nil
		case u.due <= monotonic():
			p.looks++
			p.look(pid, t)
		default:
			p.remind(u.due)
		}
	}
}

func (p *Probe) look(pid int, t *tracked) {
	if t.arming != nil {
		p.schedule(t.unwatched, monotonic()+p.quiet/4)
		return
	}
	v, s, again := p.judge(pid, t.unwatched, false)
	if v == arm || v == finish {
		// Read what is known after this: a call that ends meanwhile shows as under way, or by its
		// return.
		v, s, again = p.judge(pid, t.unwatched, p.calling(pid))
	}
	switch v {
	case arm:
		p.arm(pid, t)
		again = monotonic() + p.quiet/2
	case resume:
		if t.unwatched.moved {
			t.unwatched = nil // there was no room for the event
			return
		}
		t.unwatched.moved, again = true, s.now+p.quiet/2 // its event is about to be read
	case finish:
		p.pending = append(p.pending, doneAt(pid, s.returned))
		t.unwatched = nil
		return
	}
	p.schedule(t.unwatched, again)
}

// judge reads what the programs know of a process, and decides.
func (p *Probe) judge(pid int, u *unwatched, calling bool) (v verdict, s sight, again time.Duration) {
	s = sight{now: monotonic(), since: u.since, armed: u.armed, calling: calling}
	var state cudabpf.LaunchesBusy
	if p.launches.BusyOf.Lookup(uint32(pid), &state) != nil || p.launches.Returned.Lookup(uint32(pid), &s.returned) != nil {
		s.calling = true // nothing is known: look again later
	}
	s.launched = state.Launched != u.base
	v, again = s.decide(p.quiet)
	return v, s, again
}

// arm starts attaching the probe to launches again: the next launch is reported, as after idleness.
// If that fails, a later inspection tries again.
func (p *Probe) arm(pid int, t *tracked) {
	var before cudabpf.LaunchesBusy
	began := monotonic()
	if err := p.launches.BusyOf.Lookup(uint32(pid), &before); err != nil {
		return
	}
	now := cudabpf.LaunchesBusy{Launched: before.Launched, Done: before.Launched}
	t.trial = t.trials < maxTrials
	if t.trial {
		now.Pace = cudabpf.LaunchesPaceFAST_AGAIN
		t.trials++
	}
	// The programs do not write to it while it says that the process launches fast.
	if err := p.launches.BusyOf.Put(uint32(pid), now); err != nil {
		return
	}
	a, u := &arming{}, t.unwatched
	t.arming, u.from, u.base = a, began, now.Launched
	p.detaches.Go(func() {
		l, err := p.attachIn(pid, t, p.attachLaunches)
		p.mu.Lock()
		defer p.mu.Unlock()
		t.arming = nil
		switch {
		case a.gone:
			p.detach(l)
			t.close()
		case a.unwanted, ended(t.pidfd): // then it may be on another process with its PID
			p.detach(l)
		case err != nil:
			_ = p.launches.BusyOf.Put(uint32(pid), before)
			t.unwatched, u.from = u, 0
		default:
			t.launches, u.armed = l, monotonic()
		}
	})
}

// calling reports whether a synchronising call of the process is under way. It finds every call
// that is noted all the while: the kernel holds a lock where it reads.
func (p *Probe) calling(pid int) bool {
	calling := false
	err := p.eachCall(func(k cudabpf.LaunchesThread) {
		// A thread that ended in a call does not return from it.
		if k.Pid == uint32(pid) && unix.Tgkill(pid, int(k.Tid), 0) != unix.ESRCH {
			calling = true
		}
	})
	return calling || err != nil
}

// forgetCalls forgets the calls of a process whose returns will not be seen.
func (p *Probe) forgetCalls(pid int) {
	var gone []cudabpf.LaunchesThread
	_ = p.eachCall(func(k cudabpf.LaunchesThread) {
		if k.Pid == uint32(pid) {
			gone = append(gone, k)
		}
	})
	for _, k := range gone {
		_ = p.launches.Waits.Delete(k)
	}
}

func (p *Probe) eachCall(do func(cudabpf.LaunchesThread)) error {
	var (
		cursor ebpf.MapBatchCursor
		keys   [256]cudabpf.LaunchesThread
		begins [256]cudabpf.LaunchesWaiting
	)
	for {
		n, err := p.launches.Waits.BatchLookup(&cursor, keys[:], begins[:], nil)
		for _, k := range keys[:n] {
			do(k)
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Idle reports again for each tracked process that its work was done, and when. Use it after events
// had no room (Stats.Lost). A process that works, or may work, is not among them.
func (p *Probe) Idle() (told []Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	for pid, t := range p.tracked {
		var state cudabpf.LaunchesBusy
		var returned time.Duration
		if t.unwatched != nil || p.launches.Returned.Lookup(uint32(pid), &returned) != nil || returned == 0 {
			continue
		}
		// Read after that: work launched since then shows.
		if p.launches.BusyOf.Lookup(uint32(pid), &state) == nil && state.Pace != cudabpf.LaunchesPaceFAST && state.Launched == state.Done {
			told = append(told, doneAt(pid, returned))
		}
	}
	return told
}

// doneAt is the event that a process's work was done at a time.
func doneAt(pid int, at time.Duration) Event {
	wall, bound := readClocks().wall(uint64(at))
	return Event{PID: pid, Kind: Done, Time: wall, ErrorBound: bound + TrapBound, at: at}
}
