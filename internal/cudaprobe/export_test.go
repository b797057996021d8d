package cudaprobe

// Launches is how many launches of a tracked process the programs have counted.
func (p *Probe) Launches(pid int) (uint64, error) {
	var state busyState
	err := p.maps.busy.Lookup(uint32(pid), &state)
	return state.Launched, err
}
