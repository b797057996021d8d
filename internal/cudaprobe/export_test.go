package cudaprobe

import (
	"github.com/laxity/laxity/internal/cudabpf"
	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
)

// Launches is how many launches of a tracked process the programs have counted.
func (p *Probe) Launches(pid int) (uint64, error) {
	var state cudabpf.LaunchesBusy
	err := p.launches.BusyOf.Lookup(uint32(pid), &state)
	return state.Launched, err
}

// HoldProbes makes Close wait as for an attachment that hangs, until release.
func (p *Probe) HoldProbes() (release func()) {
	p.detaches.Add(1)
	return p.detaches.Done
}

// QuestionEntries is how many entries the map of questions has.
func (g *MemoryGuard) QuestionEntries() uint32 { return g.objects.Questions.MaxEntries() }

// HoldAdd is an Add of the file that hangs, and fails once fail is called.
func (p *Probe) HoldAdd(id cudafile.ID) (fail func()) {
	a := &attached{over: make(chan struct{})}
	p.mu.Lock()
	p.files[id] = a
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		delete(p.files, id)
		p.mu.Unlock()
		close(a.over)
	}
}
