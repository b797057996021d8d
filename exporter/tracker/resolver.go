package tracker

import (
	"errors"
	"io/fs"
	"time"

	"github.com/laxity/laxity/exporter/sensor"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// A process that seems to be the host's may be a container's that has not been moved to its
// cgroup yet. The resolver inspects it again after a while, and then less and less often.
const (
	firstDoubt = 200 * time.Millisecond
	lastDoubt  = 10 * time.Second
)

// resolver finds out which process has a PID, without mistaking one process for another.
type resolver struct {
	exits     sensor.Exits
	processes Processes
	doubts    map[string]doubt // host processes, by identity
}

type doubt struct {
	next time.Time
	wait time.Duration
}

// subject watches the process that has this PID now, reads its container, and then checks
// that the process still lives, so that both belong together.
func (r *resolver) subject(pid int) (core.Subject, error) {
	p, err := r.exits.Watch(pid)
	if err != nil {
		return core.Subject{}, err
	}
	s := core.Subject{Process: p}
	s.Container, _, err = r.processes.OfPID(pid)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.exits.Forget(p)
		return core.Subject{}, err
	}
	// Without its start the error bound is wider, and only the time shows which process an
	// event belongs to.
	if stat, err := r.processes.Stat(pid); err == nil {
		s.Born, s.Started, s.MPSServer = stat.Born, stat.Started, stat.MPSServer
	}
	if err != nil || !r.exits.Alive(p) {
		r.exits.Forget(p)
		return core.Subject{}, sensor.ErrGone
	}
	return s, nil
}

// again inspects a host process once more when that is due. It reports whether the process
// belongs to a container.
func (r *resolver) again(s core.Subject, now time.Time) (core.Subject, bool) {
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
