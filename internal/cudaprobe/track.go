package cudaprobe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// tracked is one process whose launches are followed.
type tracked struct {
	links links
	pidfd int // tells whether it is still that process
}

// trackPrograms follow the launches of single processes.
type trackPrograms struct {
	launch   *ebpf.Program
	begin    *ebpf.Program // of a synchronising call
	syncDone *ebpf.Program // its return
	copyDone *ebpf.Program // the return of a copy that may or may not have waited
}

func (t *trackPrograms) Close() error {
	var errs []error
	for _, p := range []*ebpf.Program{t.launch, t.begin, t.syncDone, t.copyDone} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

func (p *Probe) loadTrackPrograms() (*trackPrograms, error) {
	t := &trackPrograms{}
	var errs [4]error
	t.launch, errs[0] = p.attacher.program(launch(p.maps))
	t.begin, errs[1] = p.attacher.program(begin(p.maps))
	t.syncDone, errs[2] = p.attacher.program(done(p.maps, false))
	t.copyDone, errs[3] = p.attacher.program(done(p.maps, true))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Track begins to follow the launches of one process, which must have loaded the
// driver (else ErrNotLoaded): Launched when it launches while it was idle, and
// Done when a synchronising call returns and nothing was launched since that
// began. Work launched before Track is not known. Every other process pays
// nothing. It needs Linux 5.12 (else ErrUnsupported).
//
// It follows the process that has this PID now; make sure afterwards that it is
// the one you meant. Tracking a process twice is once.
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
	defer cudafile.CloseAll(files)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = unix.Close(pidfd)
		return ErrClosed
	}
	if old := p.tracked[pid]; old != nil {
		if !ended(old.pidfd) {
			return unix.Close(pidfd)
		}
		p.untrack(pid) // it was another process
	}
	p.tracked[pid] = &tracked{pidfd: pidfd}
	if err := p.track(pid, files); err != nil {
		p.untrack(pid)
		return err
	}
	return nil
}

func (p *Probe) track(pid int, files []*cudafile.File) (err error) {
	if p.perCall == nil {
		if p.perCall, err = p.loadTrackPrograms(); err != nil {
			return explain("load BPF programs that follow launches", err)
		}
	}
	if err := p.maps.busy.Put(uint32(pid), busyState{}); err != nil {
		return fmt.Errorf("track process %d: %w", pid, err)
	}
	t := p.tracked[pid]
	for _, file := range files {
		l, err := p.trackIn(file, pid)
		t.links = append(t.links, l...)
		if err != nil && !errors.Is(err, cudafile.ErrNotDriver) {
			return explainAttach(fmt.Sprintf("track process %d", pid), err)
		}
	}
	if len(t.links) == 0 {
		return fmt.Errorf("track process %d: %w", pid, ErrNotLoaded)
	}
	return nil
}

func (p *Probe) trackIn(file *cudafile.File, pid int) (links, error) {
	functions, err := p.functions(file)
	if err != nil {
		return nil, err
	}
	var all links
	for _, want := range []struct {
		kinds    []cudafile.Kind
		program  *ebpf.Program
		atReturn bool
	}{
		{[]cudafile.Kind{cudafile.Sync, cudafile.AsyncCopy}, p.perCall.begin, false},
		{[]cudafile.Kind{cudafile.Sync}, p.perCall.syncDone, true},
		{[]cudafile.Kind{cudafile.AsyncCopy}, p.perCall.copyDone, true},
		{[]cudafile.Kind{cudafile.Launch}, p.perCall.launch, false},
	} {
		var offsets []uint64
		for _, kind := range want.kinds {
			offsets = append(offsets, functions[kind]...)
		}
		l, err := p.attacher.attach(file, want.program, offsets, pid, want.atReturn)
		if err != nil {
			return all, err
		}
		all = append(all, l...)
	}
	return all, nil
}

// functions of a file that has probes already are known.
func (p *Probe) functions(file *cudafile.File) (cudafile.Functions, error) {
	if a := p.files[file.ID]; a != nil {
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
	_ = p.maps.busy.Delete(uint32(pid)) // then the programs do nothing for it
	_ = unix.Close(t.pidfd)
	p.detach(t.links)
}

// ended reports whether the process behind a pidfd has ended.
func ended(pidfd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}
