package policies

import (
	"math"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/device/sim/compute"
)

// The times that simulating takes from measurements on an H200 (gpu-facts).
const (
	seen      = 2 * time.Millisecond  // from an event to the plan that follows it
	pausing   = 15 * time.Millisecond // docker pause, docker unpause
	tick      = 100 * time.Millisecond
	slice     = 2 * time.Millisecond
	switching = 300 * time.Microsecond
	settle    = 400 * time.Millisecond
)

var lag = compute.Utilization{Period: 200 * time.Millisecond, Rise: 300 * time.Millisecond, Fall: 770 * time.Millisecond}

// way is how the jobs are run.
type way struct {
	policy string // none, one of actuator.Policies, or order
	order  []int  // of policy order: the jobs by index, the first one first
}

func (w way) name() string {
	if w.policy == "none" {
		return "none"
	}
	return w.policy + ", pause"
}

// stage is where a process is in its life.
type stage int

const (
	away stage = iota
	host
	copyIn
	computing
	gap
	copyOut
	ended
)

// process is one job being run.
type process struct {
	job
	at      stage
	left    time.Duration // of a stage that the CPU works at
	kernel  int           // launched so far
	op      *compute.Op   // the kernel in flight
	end     time.Duration
	ran     time.Duration // not standing still
	stopped bool          // by a pause that has taken effect
	// change is when a pause, or an unpause, takes effect; 0: none is under way.
	change   time.Duration
	changeTo bool
	since    time.Time // of stopped, or of change
	cause    plan.Cause
	admitted time.Time
}

// world is one GPU and its processes, in virtual time.
type world struct {
	way
	now   time.Duration
	unit  *compute.Unit
	all   []*process
	plan  time.Duration // when the next plan is due
	last  time.Duration // last action
	held  []string      // admitted, in order
	may   []string      // compute: those, and who runs beside them
	floor plan.Floor
}

var epoch = time.Unix(1_700_000_000, 0)

func (w *world) clock() time.Time { return epoch.Add(w.now) }

const never = time.Duration(math.MaxInt64)

// simulate runs the jobs and returns when each ended.
func simulate(jobs []job, how way) []time.Duration {
	w := &world{way: how, unit: compute.NewUnit(slice, switching), plan: never, last: -time.Hour}
	w.unit.Advance(epoch)
	for _, j := range jobs {
		w.all = append(w.all, &process{job: j})
	}
	for {
		next := w.next()
		if next == never {
			break
		}
		w.advance(next)
	}
	ends := make([]time.Duration, 0, len(jobs))
	for _, p := range w.all {
		ends = append(ends, p.end)
	}
	return ends
}

// working: the CPU is at it, and nobody stopped it.
func (p *process) working() bool {
	return !p.stopped && (p.at == host || p.at == copyIn || p.at == gap || p.at == copyOut)
}

func (w *world) next() time.Duration {
	next := w.plan
	if t, ok := w.unit.Next(); ok {
		next = min(next, t.Sub(epoch))
	}
	for _, p := range w.all {
		switch {
		case p.at == away:
			next = min(next, p.arrive)
		case p.working():
			next = min(next, w.now+p.left)
		}
		if p.change > 0 {
			next = min(next, p.change)
		}
	}
	return max(next, w.now)
}

// advance moves everything to the moment to, and lets happen what happens then.
func (w *world) advance(to time.Duration) {
	step := to - w.now
	for _, p := range w.all {
		if p.working() {
			p.left -= step
		}
		if p.at != away && p.at != ended && !p.stopped {
			p.ran += step
		}
	}
	w.now = to
	w.unit.Advance(w.clock())
	for i, p := range w.all {
		w.happen(compute.Owner(i), p)
	}
	if w.plan <= w.now {
		w.plan = never
		w.decide()
	}
}

// happen lets one process go from one stage to the next.
func (w *world) happen(owner compute.Owner, p *process) {
	before := *p
	if p.change > 0 && p.change <= w.now {
		p.change, p.stopped = 0, p.changeTo
	}
	if p.op != nil {
		select {
		case <-p.op.Done():
			p.op = nil
			p.enter(gap, p.gap)
			if p.kernel == p.kernels {
				p.enter(copyOut, p.out)
			}
		default:
		}
	}
	switch {
	case p.at == away && p.arrive <= w.now:
		p.enter(host, p.host)
	case p.working() && p.left <= 0:
		w.through(p)
	}
	if p.at == computing && p.op == nil && !p.stopped {
		p.op = w.unit.Launch(w.clock(), owner, p.job.kernel)
		p.kernel++
	}
	if p.at != before.at || p.op != before.op || p.change != before.change {
		w.soon()
	}
}

func (p *process) enter(s stage, d time.Duration) { p.at, p.left = s, d }

func (w *world) through(p *process) {
	switch p.at {
	case host:
		p.enter(copyIn, p.in)
	case copyIn, gap:
		p.enter(computing, 0)
	case copyOut:
		p.enter(ended, 0)
		p.end = w.now
	}
}

// soon asks for a plan.
func (w *world) soon() {
	if w.policy != "none" {
		w.plan = min(w.plan, w.now+seen)
	}
}
