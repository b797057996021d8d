package ladder_test

import (
	"fmt"
	"slices"
	"time"
)

// figures are what a world did between settled and over.
type figures struct {
	got      map[string]time.Duration
	useful   time.Duration
	lost     time.Duration
	switches int
	leaves   int
}

// measureRun runs the world to its end.
func (w *world) measureRun() figures { return w.during(settled, over) }

// during runs the world up to a time, and returns what it did from another one on.
func (w *world) during(from, to time.Duration) figures {
	w.run(from)
	before := w.figures()
	w.run(to)
	after := w.figures()
	f := figures{got: map[string]time.Duration{}, useful: after.useful - before.useful, lost: after.lost - before.lost, switches: after.switches - before.switches, leaves: after.leaves - before.leaves}
	for id, d := range after.got {
		f.got[id] = d - before.got[id]
	}
	return f
}

// parts runs the world up to a time, and returns which part of the GPU each had from another one on.
func (w *world) parts(from, to time.Duration) map[string]float64 {
	all := map[string]float64{}
	for id, d := range w.during(from, to).got {
		all[id] = d.Seconds() / (to - from).Seconds()
	}
	return all
}

func (w *world) figures() figures {
	f := figures{got: map[string]time.Duration{}, useful: w.useful(), lost: w.lost, switches: w.switches}
	for _, a := range w.actors {
		f.got[a.tenant.ID] = a.got
		f.leaves += a.leaves
	}
	return f
}

// mostCalls is the most calls within a second.
func (w *world) mostCalls() int {
	most, from := 0, 0
	for i, at := range w.made {
		for at-w.made[from] > time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// watchWindows looks at each four seconds: the floor is kept in it. It returns what is wrong,
// once the world has run.
func (w *world) watchWindows() *string {
	wrong := new(string)
	const grid = 100 * time.Millisecond
	var history []map[string]time.Duration
	w.watch = func() {
		if w.now < settled+time.Duration(len(history))*grid {
			return
		}
		now := w.figures().got
		history = append(history, now)
		if n := len(history); n > 40 && *wrong == "" {
			got := map[string]time.Duration{}
			for id, d := range now {
				got[id] = d - history[n-41][id]
			}
			// What gaps do not give is given within a second: the device tells it a second later: in four seconds that of 1.2.
			*wrong = w.kept(got, 0.3)
		}
	}
	return wrong
}

// kept compares what was had with that part of what was promised, of what all had. It
// looks at those that fill the GPU, and where all that is promised is ours to give.
func (w *world) kept(got map[string]time.Duration, part float64) string {
	if !w.measured {
		return ""
	}
	var floor, all time.Duration
	for _, d := range got {
		all += d
	}
	batch, others, gaps := 0, 0, false
	for _, a := range w.actors {
		t := a.tenant
		switch {
		case !t.Labelled || t.Never || t.KeepOn != "" && a.every == 0 || a.service > a.every:
			return ""
		case t.Share > 0:
		case t.Job.Batch:
			batch++
			floor += got[t.ID]
			gaps = gaps || !a.fills()
		default:
			others++
		}
	}
	if want := part * w.cutFloor(); batch > 0 && others > 0 && !gaps && floor.Seconds() < want*all.Seconds() {
		return fmt.Sprintf("up to %v batch had %.1f %% of the GPU, want %.1f %%", w.now, 100*floor.Seconds()/all.Seconds(), 100*want)
	}
	return ""
}

// sharesKept looks at whether everybody with a share has had it, within so many times three
// points, or six beside servers.
func (w *world) sharesKept(f figures, times float64) string {
	for _, a := range w.actors {
		t := a.tenant
		if !w.measured || !t.Labelled || t.Never || t.KeepOn != "" && a.every == 0 || a.service > a.every {
			return ""
		}
	}
	within := 0.03
	if slices.ContainsFunc(w.actors, func(a *actor) bool { return a.every > 0 }) {
		within = 0.06 // in turns, of which requests and those who fill gaps take some
	}
	within *= times
	for _, a := range w.actors {
		if part, got := w.share(a), f.got[a.tenant.ID].Seconds()/f.useful.Seconds(); part > 0 && a.fills() && got < part-within {
			return fmt.Sprintf("%s had %.1f %% of what all had, its share is %.0f %%", a.tenant.ID, 100*got, 100*part)
		}
	}
	return ""
}

// crowdedOut reports whether requests and all that is promised do not fit on the GPU
// together: then nobody has all of it.
func (w *world) crowdedOut() bool {
	sum, shares := w.floor, 0.0
	for _, a := range w.actors {
		shares += a.tenant.Share
		if a.every > 0 {
			sum += a.service.Seconds() / a.every.Seconds()
		}
	}
	return shares > 0 && sum+shares > 0.9
}

func (w *world) cutFloor() float64 {
	sum := w.floor
	for _, o := range w.actors {
		sum += o.tenant.Share
	}
	return w.floor / max(1, sum)
}

// share is the actor's, as it is cut.
func (w *world) share(a *actor) float64 {
	sum, batch := 0.0, 0
	for _, o := range w.actors {
		sum += o.tenant.Share
		if o.tenant.Labelled && !o.tenant.Never && o.tenant.Share == 0 && o.every == 0 {
			batch = 1
		}
	}
	sum += w.floor * float64(batch)
	return a.tenant.Share / max(1, sum)
}

// fills reports whether it computes whenever it may.
func (a *actor) fills() bool { return a.endless && len(a.phases) == 1 }

func (w *world) describe(mine, def figures) string {
	out := fmt.Sprintf("floor %.2f, measured %v, useful %.3f (default %.3f), switches %d (%d)\n", w.floor, w.measured,
		mine.useful.Seconds(), def.useful.Seconds(), mine.switches, def.switches)
	for _, a := range w.actors {
		id := a.tenant.ID
		kind := "ours"
		if !a.tenant.Labelled || a.tenant.Never {
			kind = "not ours"
		}
		out += fmt.Sprintf("  %-10s %-8s got %.3f (default %.3f) share %.2f deadline %v every %v service %v phases %v\n             %s\n", id, kind, mine.got[id].Seconds(),
			def.got[id].Seconds(), a.tenant.Share, a.tenant.Deadline, a.every, a.service, a.phases, w.plan.Standings[id].Reason)
	}
	return out
}
