package policies

import (
	"cmp"
	"math"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/device/sim/engine"
)

// The times that simulating takes from measurements on an H200 (gpu-facts).
const (
	seen      = 2 * time.Millisecond  // from an event to the plan that follows it
	pausing   = 15 * time.Millisecond // docker pause, docker unpause
	admitting = time.Millisecond      // by the launch gate
	tick      = 100 * time.Millisecond
	slice     = 2 * time.Millisecond
	switching = 300 * time.Microsecond
	settle    = 400 * time.Millisecond
)

var lag = engine.Utilization{Period: 200 * time.Millisecond, Rise: 300 * time.Millisecond, Fall: 770 * time.Millisecond}

// way is how the jobs are run.
type way struct {
	policy string // none, one of actuator.Policies, or order
	gate   bool   // held at their launches; else paused by Docker at first sight
	// blind: nothing is known of earlier runs.
	blind bool
	// crowd: nobody's start-up waits for another's.
	crowd bool
	order []int // of policy order: the jobs by index, the first one first
}

func (w way) name() string {
	switch {
	case w.policy == "none":
		return "none"
	case w.crowd:
		return w.policy + ", gate, starts at once"
	case w.blind:
		return w.policy + ", gate, no history"
	case w.gate:
		return w.policy + ", gate"
	default:
		return w.policy + ", pause"
	}
}

// stage is where a process is in its life.
type stage int

const (
	away stage = iota
	opens
	host
	copyIn
	compute
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
	op      *engine.Op    // the kernel in flight
	end     time.Duration
	ran     time.Duration // not standing still
	stopped bool          // by a pause that has taken effect
	// closed: it must not compute; change: what is under way to make it so, or not.
	closed   bool
	change   time.Duration // when it takes effect; 0: nothing is under way
	changeTo bool
	since    time.Time // of closed, or of waits
	waits    bool      // with a gate: the plan keeps it from going on
	cause    plan.Cause
	launched time.Duration // of ran, until its first launch
	// back: it must not make its context yet, or is paused if it has begun to; kept:
	// that has taken effect; keep: when it does. 0: nothing is under way.
	back, kept bool
	keep       time.Duration
	admitted   time.Time
}

// world is one GPU and its processes, in virtual time.
type world struct {
	way
	now   time.Duration
	unit  *engine.Unit
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
	w := &world{way: how, unit: engine.NewUnit(slice, switching), plan: never, last: -time.Hour}
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
	return !p.stopped && !p.kept && (p.at == opens || p.at == host || p.at == copyIn || p.at == gap || p.at == copyOut)
}

// waiting: it would launch, and must not.
func (w *world) waiting(p *process) bool {
	return p.at == compute && p.op == nil && (p.stopped || w.gate && p.closed)
}

func (w *world) next() time.Duration {
	next := w.plan
	turns := w.openers()
	if t, ok := w.unit.Next(); ok {
		next = min(next, t.Sub(epoch))
	}
	for _, p := range w.all {
		switch {
		case p.at == away:
			next = min(next, p.arrive)
		case p.working() && p.at == opens:
			next = min(next, w.now+turns*p.left)
		case p.working():
			next = min(next, w.now+p.left)
		}
		for _, change := range []time.Duration{p.change, p.keep} {
			if change > 0 {
				next = min(next, change)
			}
		}
	}
	return max(next, w.now)
}

// advance moves everything to the moment to, and lets happen what happens then.
func (w *world) advance(to time.Duration) {
	step := to - w.now
	turns := w.openers()
	for _, p := range w.all {
		switch {
		case p.working() && p.at == opens:
			p.left -= (step + turns - 1) / turns
		case p.working():
			p.left -= step
		}
		if p.at != away && p.at != ended && !p.stopped && !p.kept && !w.waiting(p) {
			p.ran += step
		}
	}
	w.now = to
	w.unit.Advance(w.clock())
	for i, p := range w.all {
		w.happen(engine.Owner(i), p)
	}
	if w.plan <= w.now {
		w.plan = never
		w.decide()
	}
}

// happen lets one process go from one stage to the next.
func (w *world) happen(owner engine.Owner, p *process) {
	before := *p
	if p.change > 0 && p.change <= w.now {
		p.change = 0
		p.closed = p.changeTo
		p.stopped = p.changeTo && !w.gate
	}
	if p.keep > 0 && p.keep <= w.now {
		p.keep, p.kept = 0, p.back
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
		p.enter(opens, p.open)
		// The gate is closed for whoever comes while it is in charge.
		p.closed = w.gate && w.policy != "none"
	case p.working() && p.left <= 0:
		w.through(p)
	}
	if p.at == compute && p.op == nil && !w.waiting(p) {
		p.op = w.unit.Launch(w.clock(), owner, p.job.kernel)
		p.kernel++
		p.launched = cmp.Or(p.launched, p.ran)
	}
	if p.at != before.at || p.op != before.op || p.change != before.change {
		w.soon()
	}
}

// openers are how many make contexts now, among whom the driver goes round; 1 if
// none does.
func (w *world) openers() time.Duration {
	n := time.Duration(0)
	for _, p := range w.all {
		if p.at == opens && p.working() {
			n++
		}
	}
	return max(n, 1)
}

func (p *process) enter(s stage, d time.Duration) { p.at, p.left = s, d }

func (w *world) through(p *process) {
	switch p.at {
	case opens:
		p.enter(host, p.host)
	case host:
		p.enter(copyIn, p.in)
	case copyIn, gap:
		p.enter(compute, 0)
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
