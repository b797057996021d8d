package ladder_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/plan/greed"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// What the calls take until they show, and how late the actuator learns of a start or an end.
const (
	setting  = 600 * time.Microsecond
	offing   = 1400 * time.Microsecond
	oning    = 1200 * time.Microsecond
	learning = time.Millisecond
	busyGap  = 15 * time.Millisecond // requests closer than that are one interval: --busy.gap, and what an event takes
)

// world is a GPU with its processes, and the plans that are carried out there.
type world struct {
	*gpu
	actors   []*actor
	planned  bool // else as without Laxity
	order    func(now time.Time) policy.Order
	floor    float64
	limits   ladder.Limits
	measured bool
	lags     bool // GPU time is known as a device's utilisation tells it
	samples  bool // it is not exact

	seen     ladder.Switches
	traceAt  time.Duration // when its next window begins, or the present one ends
	tracing  bool          // one has begun, at tracedAt
	tracedAt time.Duration
	rate     float64
	jitter   time.Duration // how much later than its second it begins
	random   *rand.Rand

	judge greed.Judge
	read  time.Duration            // when it got the last reading
	told  map[string]time.Duration // GPU time of each then

	state   ladder.State
	plan    ladder.Plan
	at      time.Duration // of the next plan
	calls   []ladder.Change
	done    time.Duration // of the first of the calls
	made    []time.Duration
	longest time.Duration // off
	watch   func()
	err     string
	late    string // a request that waited for too long
	carried int
}

func (w *world) start() {
	for _, a := range w.actors {
		w.add(&a.proc)
		a.upcoming = a.arrive
	}
}

func edf(now time.Time) policy.Order {
	return policy.LateLast{Placer: policy.EDF{Now: now}, Now: now}
}

func llf(now time.Time) policy.Order {
	return policy.LateLast{Placer: policy.LLF{Now: now}, Now: now}
}

func fifo(time.Time) policy.Order { return policy.FIFO{} }

// run lets time pass up to t.
func (w *world) run(t time.Duration) {
	for w.now < t && w.err == "" {
		to := t
		for _, a := range w.actors {
			to = min(to, a.next())
		}
		if len(w.calls) > 0 {
			to = min(to, w.done)
		} else if w.planned {
			to = min(to, w.at)
		}
		if w.measured && !w.samples {
			to = min(to, w.traceAt)
		}
		w.pass(max(w.next(to), w.now))
		w.trace()
		if w.running && w.last.left == 0 {
			for _, a := range w.actors {
				if w.last == &a.proc {
					a.leaves++
				}
			}
		}
		for _, a := range w.actors {
			if a.happen(w.now) && w.planned {
				w.at = min(w.at, w.now+learning)
			}
		}
		w.call()
		w.choose()
		for _, a := range w.actors {
			a.look(w)
		}
		if w.watch != nil {
			w.watch()
		}
	}
}

// How the exporter reads context switches (exporter/device/nvml): all of the time while there are few, else 100 ms
// of each second.
const (
	traceFor = 100 * time.Millisecond
	fewTimes = 150 // a second
	manyMore = 100
)

// trace reads the context switches.
func (w *world) trace() {
	if !w.measured || w.samples || w.now < w.traceAt {
		return
	}
	if !w.tracing {
		w.beginTrace(traceFor)
		return
	}
	w.tracing, w.at = false, min(w.at, w.now+learning)
	window := w.now - w.tracedAt
	w.seen = ladder.Switches{From: epoch.Add(w.tracedAt), For: window}
	for _, a := range w.actors {
		came := a.came - a.traced.came
		if a.tenant.Stay = 0; came > 0 {
			a.tenant.Stay = (a.present + a.saved - a.traced.present - a.traced.saved) / time.Duration(came)
		}
		w.seen.Rate += float64(came) / window.Seconds()
	}
	for _, a := range w.actors {
		is := (a.got + a.saved - a.traced.got - a.traced.saved).Seconds() / window.Seconds()
		if a.reading.part = is; w.seen.Rate == 0 { // the driver's samples tell it, up to 0.8 s late
			a.reading.part = 0.8*a.reading.last + 0.2*is
		}
		a.reading.last = is
	}
	before := w.rate
	w.rate = w.seen.Rate
	if w.rate < fewTimes && (w.rate < manyMore || w.rate < 2*before) {
		w.beginTrace(time.Second)
		return
	}
	w.traceAt = w.now - w.jitter
	if window <= traceFor {
		w.traceAt += time.Second - traceFor
	}
	w.jitter = time.Duration(w.random.Int64N(int64(300 * ms)))
	w.traceAt += w.jitter
}

func (w *world) beginTrace(length time.Duration) {
	if length > traceFor {
		w.jitter = 0
	}
	w.tracing, w.tracedAt, w.traceAt = true, w.now, w.now+length
	for _, a := range w.actors {
		a.traced = a.proc
	}
}

// look notes when a request begins to compute.
func (a *actor) look(w *world) {
	if a.fresh && a.carried == 0 {
		a.carried = w.carried + 1
	}
	if n := len(a.waits); n > 0 && a.waits[n-1] <= 0 && w.running && w.last == &a.proc && w.ready <= w.now {
		a.waits[n-1] += w.now
		if a.fresh && a.carried == w.carried+1 && w.planned && w.now > settled {
			w.waited(a, a.waits[n-1])
		}
		a.fresh, a.carried = false, 0
	}
	if a.off {
		w.longest = max(w.longest, w.now-a.offSince)
	}
}

// waited compares how long a request waited with what the others may take at most:
// each its slice and a switch, and a switch that was under way. A server that has the
// GPU keeps it for its requests.
func (w *world) waited(a *actor, d time.Duration) {
	most := 2 * w.cost
	for _, o := range w.actors {
		if o != a && !o.off {
			most += o.slice + w.cost
			if o.every > 0 {
				most += min(time.Duration(max(3, len(o.queue)))*o.service, o.slice) - o.slice // an overloaded one has requests for all of its slice
			}
		}
	}
	if d > most && a.service < a.every/2 && w.late == "" {
		w.late = fmt.Sprintf("at %v a request of %s has waited for %v, want at most %v", w.now, a.tenant.ID, d, most)
	}
}

// call lets the calls take effect, and makes a plan where it is time.
func (w *world) call() {
	if !w.planned {
		return
	}
	for len(w.calls) > 0 && w.done <= w.now {
		w.carryOut(w.calls[0])
		if w.calls = w.calls[1:]; len(w.calls) > 0 {
			w.done = w.now + takes(w.calls[0])
		}
	}
	if len(w.calls) > 0 || w.at > w.now {
		return
	}
	w.plan = ladder.Make(w.input(), w.state)
	w.state = w.plan.State
	w.at = never
	if !w.plan.Again.IsZero() {
		w.at = max(w.plan.Again.Sub(epoch), w.now+time.Microsecond)
	}
	for range w.plan.Changes {
		w.made = append(w.made, w.now)
	}
	if w.calls = slices.Clone(w.plan.Changes); len(w.calls) > 0 {
		w.done = w.now + takes(w.calls[0])
	}
	w.check()
}

func takes(c ladder.Change) time.Duration {
	switch {
	case c.Set:
		return setting
	case c.Standing.Off:
		return offing
	default:
		return oning
	}
}

func (w *world) carryOut(c ladder.Change) {
	w.carried++
	a := w.actor(c.Tenant)
	if a.ended > 0 {
		return
	}
	if c.Set {
		a.slice = c.Standing.Slice
	} else {
		a.off, a.offSince, a.until = c.Standing.Off, w.now, c.Standing.Until.Sub(epoch)
	}
}

func (w *world) actor(id string) *actor {
	return w.actors[slices.IndexFunc(w.actors, func(a *actor) bool { return a.tenant.ID == id })]
}

// check looks at what holds of every plan.
func (w *world) check() {
	in := w.input()
	for i := range in.Tenants {
		if s, ok := w.plan.Standings[in.Tenants[i].ID]; ok {
			in.Tenants[i].Stands = s
		}
	}
	if again := ladder.Make(in, w.state); len(again.Changes) > 0 {
		w.err = fmt.Sprintf("a plan that was carried out changes something when it is made again: %+v", again.Changes)
	}
	for _, t := range in.Tenants {
		s, ok := w.plan.Standings[t.ID]
		switch {
		case ok != (t.Labelled && !t.Never):
			w.err = fmt.Sprintf("%s: labelled %v, never %v, and it has a standing: %v", t.ID, t.Labelled, t.Never, ok)
		case ok && s.Off && t.KeepOn != "":
			w.err = t.ID + " is off, and it must not"
		case ok && (s.Reason == "" || s.Slice < time.Microsecond):
			w.err = fmt.Sprintf("%s: %+v", t.ID, s)
		}
	}
}

func (w *world) input() ladder.Input {
	now := epoch.Add(w.now)
	in := ladder.Input{Now: now, Order: w.order(now), Floor: w.floor, Limits: w.limits, Switches: w.seen}
	for _, a := range w.actors {
		if a.arrive > w.now || a.ended > 0 {
			continue
		}
		t := a.tenant
		t.Stands = ladder.Standing{Slice: a.slice, Off: a.off}
		if a.off {
			t.Stands.Until = epoch.Add(a.until)
		}
		t.Got, t.Measured, t.Exact = a.got+a.saved, w.measured, w.measured && !w.samples
		t.Used = a.reading.part
		if w.lags {
			t.Got = a.reading.of(w.now, t.Got, !w.samples)
		}
		begin := a.arrive
		t.HasTask = true
		if a.every > 0 {
			t.HasTask = len(a.queue) > 0 || w.now-a.quiet < busyGap
			begin = a.busy
		}
		if a.asks {
			t.HasTask = a.paused == 0 || w.now-a.paused < busyGap
			begin = a.asked
		}
		t.Job.Task = task.Task{ID: t.ID, Start: task.Mark{Time: epoch.Add(begin)}}
		t.Job.Request = a.every > 0 || a.asks
		if t.Deadline > 0 {
			t.Job.Deadline = epoch.Add(begin + t.Deadline)
		}
		in.Tenants = append(in.Tenants, t)
	}
	in.Greedy = w.greedy(in.Tenants)
	return in
}

// greedy reads what those that are not ours have used since the plan before, and judges.
func (w *world) greedy(tenants []ladder.Tenant) bool {
	passed, parts, strangers := w.now-w.read, map[string]float64{}, []string{}
	for _, t := range tenants {
		if t.Labelled {
			continue
		}
		strangers = append(strangers, t.ID)
		if passed > 0 {
			parts[t.ID] = (t.Got - w.told[t.ID]).Seconds() / passed.Seconds()
			w.told[t.ID] = t.Got
		}
	}
	if passed > 0 && w.measured {
		w.read = w.now
		w.judge.Read(epoch.Add(w.now), parts)
	}
	return w.judge.Greedy(strangers)
}

// reading is how a device tells GPU time: once a second the part of the second before,
// which counts from then on.
type reading struct {
	at, told time.Duration
	got, sum time.Duration
	part     float64
	last     float64 // in the last window of the trace
}

func (r *reading) of(now, got time.Duration, windows bool) time.Duration {
	r.sum += time.Duration(r.part * float64(now-r.told))
	r.told = now
	if windows {
		return r.sum
	}
	if d := now - r.at; d >= time.Second {
		r.part = min((got-r.got).Seconds()/d.Seconds(), 1)
		r.at, r.got = now, got
	}
	return r.sum
}

func newWorld(planned bool, actors ...*actor) *world {
	w := &world{told: map[string]time.Duration{}, random: rand.New(rand.NewPCG(1, 2)), gpu: newGPU(ladder.SwitchCost), planned: planned, order: edf, actors: actors, measured: true}
	w.start()
	return w
}

// useful is the time in which somebody computed.
func (w *world) useful() time.Duration {
	var sum time.Duration
	for _, a := range w.actors {
		sum += a.got
	}
	return sum
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func uniform(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}
