package tracker

import (
	"errors"
	"io/fs"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/tracker/machine"
)

// A host process may be a container's that has not been moved to its cgroup yet:
// it is looked at again after a while, and ever less often.
const (
	firstDoubt = 200 * time.Millisecond
	lastDoubt  = 10 * time.Second
)

// resolver learns who has a PID without mistaking one process for another.
type resolver struct {
	exits     sensor.Exits
	processes Processes
	doubts    map[string]doubt // host processes, by identity
}

type doubt struct {
	next time.Time
	wait time.Duration
}

// subject watches the process that has this PID now, reads its container, and
// then makes sure that it was that process all along.
func (r *resolver) subject(pid int) (machine.Subject, error) {
	p, err := r.exits.Watch(pid)
	if err != nil {
		return machine.Subject{}, err
	}
	s := machine.Subject{Process: p}
	s.Container, _, err = r.processes.OfPID(pid)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.exits.Forget(p)
		return machine.Subject{}, err
	}
	// Without it the error bound is wider, and the time alone says whose events are.
	if stat, err := r.processes.Stat(pid); err == nil {
		s.Born, s.Started = stat.Born, stat.Started
	}
	if err != nil || !r.exits.Alive(p) {
		r.exits.Forget(p)
		return machine.Subject{}, sensor.ErrGone
	}
	return s, nil
}

// again looks once more at a host process when it is time to. It reports whether
// it turned out to be a container's.
func (r *resolver) again(s machine.Subject, now time.Time) (machine.Subject, bool) {
	d, known := r.doubts[s.Identity]
	if known && now.Before(d.next) {
		return s, false
	}
	d.wait = min(max(2*d.wait, firstDoubt), lastDoubt)
	d.next = now.Add(d.wait)
	r.doubts[s.Identity] = d
	id, ok, err := r.processes.OfPID(s.PID)
	if err != nil || !ok || !r.exits.Alive(s.Process) {
		return s, false
	}
	delete(r.doubts, s.Identity)
	s.Container = id
	return s, true
}

func (r *resolver) forget(p sensor.Process) { delete(r.doubts, p.Identity) }
