package cudaprobe

import "github.com/laxity/laxity/internal/cudabpf"

// Launches is how many launches of a tracked process the programs have counted.
func (p *Probe) Launches(pid int) (uint64, error) {
	var state cudabpf.LaunchesBusy
	err := p.launches.BusyOf.Lookup(uint32(pid), &state)
	return state.Launched, err
}
