package gang_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/plan/gang"
	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

func TestHome(t *testing.T) {
	began := time.Unix(0, 0)
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	var h gang.Home
	for i, step := range []struct {
		at    float64
		ranks map[string]int
		off   bool
		want  string
	}{
		{0, map[string]int{"A": 1, "B": 1}, false, "A"},  // equally placed
		{1, map[string]int{"A": 1, "B": 2}, false, "A"},  // it stays
		{11, map[string]int{"A": 1, "B": 2}, true, "A"},  // while it is off, too
		{12, map[string]int{"A": 1, "B": 2}, false, "B"}, // where it is worst placed
		{13, map[string]int{"A": 3, "B": 2}, false, "B"},
		{14, map[string]int{"A": 3, "B": 0}, false, "A"}, // nobody orders it there any more
		{15, map[string]int{"B": 0, "C": 1}, false, "C"}, // it is there no more
		{99, map[string]int{"B": 1, "C": 1}, false, "C"}, // no worse elsewhere
		{100, nil, false, ""},
	} {
		if h = h.Next(at(step.at), step.ranks, step.off); h.GPU != step.want {
			t.Errorf("step %d: %q, want %q", i, h.GPU, step.want)
		}
	}
}

// Whatever the places: a home is one of its GPUs, never changes while the container is off there, and no more
// often than Stay while it is ordered; and places that stay win.
func TestHomeIsSteady(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now, h := time.Unix(0, 0), gang.Home{}
		ranks := func() map[string]int {
			all := map[string]int{}
			for _, g := range []string{"A", "B", "C"}[:rapid.IntRange(2, 3).Draw(rt, "gpus")] {
				all[g] = rapid.IntRange(0, 3).Draw(rt, g)
			}
			return all
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(rt, "ms")) * time.Millisecond)
			r, off := ranks(), rapid.Bool().Draw(rt, "off")
			before := h
			h = h.Next(now, r, off)
			rank, there := r[before.GPU]
			switch _, is := r[h.GPU]; {
			case !is:
				rt.Fatalf("home %q of %v", h.GPU, r)
			case h == before:
			case there && off:
				rt.Fatalf("it moved from %q while it was off", before.GPU)
			case there && rank > 0 && now.Sub(before.Since) < gang.Stay:
				rt.Fatalf("it moved from %q after %v", before.GPU, now.Sub(before.Since))
			case there && r[h.GPU] <= rank:
				rt.Fatalf("it moved from %d to %d", rank, r[h.GPU])
			}
		}
		r := ranks()
		h = h.Next(now.Add(gang.Stay), r, false)
		for g, rank := range r {
			if rank > r[h.GPU] {
				rt.Fatalf("it stays on %q with %v though %q is worse", h.GPU, r, g)
			}
		}
	})
}

func TestSlice(t *testing.T) {
	for _, c := range []struct {
		whole time.Duration
		n     int
		want  time.Duration
	}{{time.Second, 1, time.Second}, {time.Second, 2, 500 * time.Millisecond}, {3 * time.Millisecond, 2, ladder.DefaultSlice},
		{100 * time.Microsecond, 4, 100 * time.Microsecond}, {0, 2, 0}} {
		if got := gang.Slice(c.whole, c.n); got != c.want {
			t.Errorf("%v for %d: %v, want %v", c.whole, c.n, got, c.want)
		}
	}
}

// world is GPUs, each with a server whose deadline is too short for others' slices, some
// trainers of its own, and containers that are on several of the GPUs.
type world struct {
	now    time.Time
	gpus   []string
	local  map[string][]*tenant
	jobs   []*job
	states map[string]ladder.State
	plans  map[string]ladder.Plan
}

type tenant struct {
	ladder.Tenant
}

type job struct {
	faces map[string]*tenant // by GPU
	home  gang.Home
	since time.Time // off since
	on    time.Duration
	moves int
	turns int // times off
}

func draw(r *rand.Rand) *world {
	w := &world{now: time.Unix(1000, 0), local: map[string][]*tenant{}, states: map[string]ladder.State{}, plans: map[string]ladder.Plan{}}
	make := func(id string, deadline time.Duration) *tenant {
		t := &tenant{ladder.Tenant{ID: id, Container: id, Name: id, Labelled: true, Measured: true, HasTask: true, Wants: ladder.Yes}}
		t.Job = policy.Job{Task: task.Task{ID: id}, Batch: deadline == 0}
		if deadline > 0 {
			t.Server, t.Deadline, t.HasTask, t.Wants = true, deadline, false, ladder.No
		}
		return t
	}
	for i := range 2 + r.IntN(2) {
		gpu := fmt.Sprintf("GPU-%d", i)
		w.gpus = append(w.gpus, gpu)
		w.local[gpu] = []*tenant{make(gpu+"/server", 20*time.Millisecond)}
		for n := range r.IntN(4) {
			w.local[gpu] = append(w.local[gpu], make(fmt.Sprintf("%s/%d", gpu, n), 0))
		}
	}
	for n := range 1 + r.IntN(3) {
		j := &job{faces: map[string]*tenant{}}
		for _, i := range r.Perm(len(w.gpus))[:2+r.IntN(len(w.gpus)-1)] {
			j.faces[w.gpus[i]] = make(fmt.Sprintf("job-%d", n), 0)
		}
		w.jobs = append(w.jobs, j)
	}
	return w
}

func (j *job) off() bool { return j.faces[j.home.GPU] != nil && j.faces[j.home.GPU].Stands.Off }

// step plans for each GPU and carries that out at once; a call for a job concerns all of its GPUs.
func (w *world) step(t *testing.T) {
	t.Helper()
	for _, j := range w.jobs {
		ranks := map[string]int{}
		for gpu, f := range j.faces {
			ranks[gpu] = w.plans[gpu].Standings[f.ID].Rank
		}
		before := j.home
		if j.home = j.home.Next(w.now, ranks, j.off()); before.GPU != "" && before != j.home {
			j.moves++
		}
	}
	for _, gpu := range w.gpus {
		in := ladder.Input{Now: w.now, Order: policy.EDF{Now: w.now}}
		stands := map[string]func(ladder.Standing){}
		for _, l := range w.local[gpu] {
			in.Tenants = append(in.Tenants, l.Tenant)
			stands[l.ID] = func(s ladder.Standing) { l.Stands = s }
		}
		for _, j := range w.jobs {
			f := j.faces[gpu]
			if f == nil {
				continue
			}
			is := f.Tenant
			j.home.Bind(&is, gpu)
			in.Tenants = append(in.Tenants, is)
			stands[f.ID] = func(s ladder.Standing) {
				if s.Off != f.Stands.Off && gpu != j.home.GPU {
					t.Fatalf("%s is switched by %s, and its home is %s", f.ID, gpu, j.home.GPU)
				}
				if s.Off && !f.Stands.Off {
					j.since = w.now
					j.turns++
				}
				for _, other := range j.faces {
					other.Stands.Off, other.Stands.Until = s.Off, s.Until
				}
				f.Stands.Slice = s.Slice
			}
		}
		p := ladder.Make(in, w.states[gpu])
		w.plans[gpu], w.states[gpu] = p, p.State
		for _, c := range p.Changes {
			stands[c.Tenant](c.Standing)
		}
	}
	for _, j := range w.jobs {
		for gpu, f := range j.faces {
			if f.Stands.Off != j.off() {
				t.Fatalf("%s is off in part: on %s %v", f.ID, gpu, f.Stands.Off)
			}
		}
		if j.off() && w.now.Sub(j.since) > ladder.MaxOff+tick {
			t.Fatalf("%s is off for %v", j.faces[j.home.GPU].ID, w.now.Sub(j.since))
		}
	}
}

// tick is between two plans.
const tick = 10 * time.Millisecond

// compute lets time pass: those that are on share a GPU alike, and a job gets what it gets where that is least.
func (w *world) compute() {
	part := map[string]time.Duration{}
	for _, gpu := range w.gpus {
		n := 0
		for _, l := range w.local[gpu] {
			if l.HasTask && !l.Stands.Off {
				n++
			}
		}
		for _, j := range w.jobs {
			if j.faces[gpu] != nil && !j.off() {
				n++
			}
		}
		part[gpu] = tick / time.Duration(max(n, 1))
		for _, l := range w.local[gpu] {
			if l.HasTask && !l.Stands.Off {
				l.Got += part[gpu]
			}
		}
	}
	for _, j := range w.jobs {
		if j.off() {
			continue
		}
		least := tick
		for gpu := range j.faces {
			least = min(least, part[gpu])
		}
		for _, f := range j.faces {
			f.Got += least
		}
		j.on += tick
	}
	w.now = w.now.Add(tick)
}

// Containers on several GPUs, each with a home of its own, beside servers and trainers of each GPU: each
// is off all of its GPUs or on all of them, for no longer than anybody may be, all get on with their work in every
// few seconds, and homes and turns do not change all the time.
func TestNobodyStarvesAndNothingFlaps(t *testing.T) {
	worlds := uint64(8)
	if testing.Short() {
		worlds = 2
	}
	for seed := range worlds {
		w := draw(rand.New(rand.NewPCG(seed, 0)))
		const window, windows = 4 * time.Second, 8
		offs := 0
		for range windows {
			got := map[*tenant]time.Duration{}
			for _, j := range w.jobs {
				j.on = 0
				for _, f := range j.faces {
					got[f] = f.Got
				}
			}
			for _, all := range w.local {
				for _, l := range all {
					got[l] = l.Got
				}
			}
			for range int(window / tick) {
				w.step(t)
				w.compute()
			}
			for f, before := range got {
				if f.HasTask && f.Got-before < window/100 {
					t.Errorf("seed %d: %s got %v in %v", seed, f.ID, f.Got-before, window)
				}
			}
		}
		for i, j := range w.jobs {
			offs += j.turns
			if j.moves > 1+int(windows*window/gang.Stay) {
				t.Errorf("seed %d: the home of job %d moved %d times", seed, i, j.moves)
			}
			if j.turns > int(windows*window/(100*time.Millisecond)) {
				t.Errorf("seed %d: job %d was off %d times in %v", seed, i, j.turns, windows*window)
			}
		}
		anyOff += offs
	}
	if anyOff == 0 {
		t.Error("nobody was off in any world: nothing was tested")
	}
}

var anyOff int
