package cudaprobe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// tracked is one process whose launches are followed.
type tracked struct {
	pidfd int // shows whether it is still that process
	// files are the driver's files that it maps. They stay open, since the probes on launches are
	// attached again and again.
	files     []*cudafile.File
	functions []cudafile.Functions // of each file; none where that is no driver
	calls     links                // on calls that synchronise
	launches  links                // none while unwatched and not armed
	arming    *arming              // probes are being attached; nil: none are
	unwatched *unwatched           // nil: every launch is seen
	trial     bool                 // its next launch will count as fast
	trials    int                  // the number of trials since it last proved to be fast
}

// loadLaunches loads the programs that follow launches.
func (p *Probe) loadLaunches() error {
	var o cudabpf.LaunchesObjects
	err := p.attacher.load(cudabpf.LoadLaunches, &o, nil, map[string]*ebpf.Map{
		cudabpf.LaunchesMapEvents: p.starts.Events, cudabpf.LaunchesMapLost: p.starts.Lost,
	})
	if err != nil {
		return explain("load BPF programs that follow launches (Linux 5.12)", err)
	}
	p.launches = &o
	return nil
}

// Track follows the launches of one process, which must have loaded the driver (else ErrNotLoaded).
// It reports Launched when the process launches while idle, and Done when a synchronising call
// returns and nothing was launched since that began. Work launched before Track is unknown. Every
// other process pays nothing. Track needs Linux 5.12 (else ErrUnsupported).
//
// A watched launch costs the process some 1 µs. So a process that launches fast, 1,024 times
// within half a second, is no longer watched: one more Launched is reported, and no Done until it
// is idle. When half of Options.Quiet has passed since a synchronising call returned, its launches
// are watched again, to find out whether it is idle. If it launches again, that is reported, after
// a Done at the last return. If it does not within Quiet of that return, Done is reported with the
// time of the return, some 10 ms after Quiet is over. No Done is reported while a synchronising
// call is under way.
//
// Two errors remain. Work of a fast process is unseen if it was launched after its last
// synchronising call began and before half of Quiet had passed since that returned, and neither a
// launch nor such a call follows until Quiet is over. And a process that keeps synchronising
// without launching looks busy for a second longer.
//
// It follows the process that has this PID now; check afterwards that it is the one you meant.
// Track is idempotent.
func (p *Probe) Track(pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("track process %d: %w", pid, err)
	}
	files, err := p.finder.Mapped(pid)
	if err != nil {
		_ = unix.Close(pidfd)
		return err
	}
	t := &tracked{pidfd: pidfd, files: files}
	for _, file := range files {
		functions, err := p.functions(file)
		if err != nil && !errors.Is(err, cudafile.ErrNotDriver) {
			t.close()
			return fmt.Errorf("track process %d: %w", pid, err)
		}
		t.functions = append(t.functions, functions)
	}

	a := &arming{}
	if mine, err := p.enter(pid, t, a); !mine {
		t.close()
		return err
	}
	defer p.detaches.Done()
	calls, err := p.attachIn(pid, t, p.attachCalls)
	var launches links
	if err == nil {
		launches, err = p.attachIn(pid, t, p.attachLaunches)
	}
	if err == nil && len(calls)+len(launches) == 0 {
		err = fmt.Errorf("track process %d: %w", pid, ErrNotLoaded)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.arming = nil
	t.calls = calls
	if a.unwanted {
		p.detach(launches)
	} else {
		t.launches = launches
	}
	switch {
	case a.gone: // it was untracked meanwhile, or the probe was closed
		p.detach(append(t.calls, t.launches...))
		t.close()
		if p.closed {
			return ErrClosed
		}
		return nil
	case err != nil:
		p.untrack(pid)
		return err
	}
	return nil
}

// enter makes t, whose probes are about to be attached, the entry of a process that has none. If so,
// Close waits for detaches.Done.
func (p *Probe) enter(pid int, t *tracked, a *arming) (mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, ErrClosed
	}
	if old := p.tracked[pid]; old != nil {
		if !ended(old.pidfd) {
			return false, nil
		}
		p.untrack(pid) // it was another process
	}
	if p.launches == nil {
		if err := p.loadLaunches(); err != nil {
			return false, fmt.Errorf("track process %d: %w", pid, err)
		}
	}
	p.forgetCalls(pid)
	if err := errors.Join(p.launches.BusyOf.Put(uint32(pid), cudabpf.LaunchesBusy{}), p.launches.Returned.Put(uint32(pid), uint64(0))); err != nil {
		return false, fmt.Errorf("track process %d: %w", pid, err)
	}
	t.arming = a
	p.tracked[pid] = t
	p.detaches.Add(1)
	return true, nil
}

// close frees everything but the probes.
func (t *tracked) close() {
	_ = unix.Close(t.pidfd)
	cudafile.CloseAll(t.files)
}

// attachIn attaches to each file that a tracked process maps, or to none. Like functions, it must not
// be called with mu held.
func (p *Probe) attachIn(pid int, t *tracked, attach func(*cudafile.File, cudafile.Functions, int) (links, error)) (all links, err error) {
	for i, file := range t.files {
		l, err := attach(file, t.functions[i], pid)
		all = append(all, l...)
		if err != nil {
			p.detach(all)
			return nil, explainAttach(fmt.Sprintf("track process %d", pid), err)
		}
	}
	return all, nil
}

// attachCalls attaches the probes to the calls that synchronise.
func (p *Probe) attachCalls(file *cudafile.File, functions cudafile.Functions, pid int) (links, error) {
	return p.attacher.attachEach(file, functions, pid, []put{
		{[]cudafile.Kind{cudafile.Sync, cudafile.AsyncCopy}, p.launches.WaitEntry, false},
		{[]cudafile.Kind{cudafile.Sync}, p.launches.SyncReturn, true},
		{[]cudafile.Kind{cudafile.AsyncCopy}, p.launches.CopyReturn, true},
	})
}

// attachLaunches attaches the probe to launches.
func (p *Probe) attachLaunches(file *cudafile.File, functions cudafile.Functions, pid int) (links, error) {
	return p.attacher.attach(file, p.launches.LaunchEntry, functions[cudafile.Launch], pid, false)
}

// functions returns the functions of a file; those of files with probes are known. It must not be
// called with mu held: reading the file may take long.
func (p *Probe) functions(file *cudafile.File) (cudafile.Functions, error) {
	p.mu.Lock()
	a := p.files[file.ID]
	p.mu.Unlock()
	if a != nil {
		return a.functions, nil
	}
	return file.Functions()
}

// Untrack ends Track, at once for the events, a little later for the probes.
func (p *Probe) Untrack(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tracked[pid] != nil {
		p.untrack(pid)
	}
}

func (p *Probe) untrack(pid int) {
	t := p.tracked[pid]
	delete(p.tracked, pid)
	_ = p.launches.BusyOf.Delete(uint32(pid)) // then the programs do nothing for it
	_ = p.launches.Returned.Delete(uint32(pid))
	p.forgetCalls(pid)
	if t.arming == nil {
		t.close()
	} else { // the arming still uses the files
		t.arming.gone = true
	}
	p.detach(append(t.calls, t.launches...))
}

// ended reports whether the process behind a pidfd has ended.
func ended(pidfd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}
