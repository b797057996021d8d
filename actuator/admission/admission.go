// Package admission says whether the deadlines on a GPU can be met, and whether they still can with
// one more. README.md states the test and its sources.
//
// Pure: it imports the standard library and exporter/task only.
package admission

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Demand is what one task, or one server, needs of a GPU.
type Demand struct {
	// Name is its name in reasons.
	Name string
	// Need is the GPU time above 0 that the task still needs, or that each request takes.
	Need time.Duration
	// Alone is how long the task lasts with the GPU to itself, including its work on the host. Less
	// than Need counts as Need. Beside: that is not known; it is how long runs lasted, not all of
	// which had the GPU to themselves.
	Alone  time.Duration
	Beside bool
	// Within is the time until the task's deadline; for a server, the relative deadline of each
	// request.
	Within time.Duration
	// Server: requests come repeatedly. No two start closer together than Every (above 0), and Usual
	// is the mean distance (at least Every; 0: Every).
	Server       bool
	Every, Usual time.Duration
}

func (d Demand) alone() time.Duration { return max(d.Alone, d.Need) }

// GPU is one GPU, with the tasks and servers admitted there.
type GPU struct {
	Admitted []Demand
	// Promised is the part of the time that belongs to others in any case: shares, the batch floor,
	// and what containers take that we must not act on. 0–1; more counts as 1.
	Promised float64
	// Blocking is how long it takes to stop the container that computes: one preemption.
	Blocking time.Duration
	// Round is how long all processes that are no servers compute in one round of time slicing.
	// Switch is the cost of a change from one process to another.
	Round, Switch time.Duration
	// Risk is the part of a server's requests that may be late, 0–1. 0: none, even if all come at
	// once.
	Risk float64
	// Slice is how long the n-th server computes before the next one's turn. n counts from 0 by the
	// deadlines of their requests; shortest is the first one's.
	Slice func(n int, shortest time.Duration) time.Duration
}

// Trouble is why a deadline cannot be promised. The zero value is none.
type Trouble struct {
	Kind Kind
	// Name is the task or server whose deadline it is.
	Name string
	// Need is what it needs, Within the time until its deadline, and Free how much of that time is
	// free. For a request Need is what it takes, and Free what others' turns leave of Within.
	Need, Within, Free time.Duration
	// Beside is as in Demand.
	Beside bool
	// Load is the part of the GPU that the requests want, and Room the part of it that is free.
	Load, Room float64
}

// Kind is a kind of Trouble.
type Kind int

// The kinds.
const (
	None     Kind = iota
	Long          // it takes longer than its deadline by itself
	Crowded       // earlier deadlines and what was promised leave a task too little time
	Turns         // a request waits too long for the turns of others
	Overload      // all requests together want more than there is
)

// Check returns the first deadline that cannot be promised, in the order of the argument, tasks
// before servers.
func (g GPU) Check() Trouble {
	for i := range g.Admitted {
		if t := g.of(i); t.Kind != None {
			return t
		}
	}
	return Trouble{}
}

// Admit returns why one more cannot be admitted: it would miss its own deadline, or make another
// miss one that would otherwise be met.
func (g GPU) Admit(d Demand) Trouble {
	with := g
	with.Admitted = append(slices.Clip(slices.Clone(g.Admitted)), d)
	last := len(g.Admitted)
	if t := with.of(last); t.Kind != None {
		return t
	}
	for i := range g.Admitted {
		if t := with.of(i); t.Kind != None && g.of(i).Kind == None {
			return t
		}
	}
	return Trouble{}
}

// longest is the longest deadline that Earliest tries.
const longest = 24 * time.Hour

// Earliest is the earliest deadline that Admit accepts, to a hundredth; 0: none up to a day.
func (g GPU) Earliest(d Demand) time.Duration {
	fits := func(within time.Duration) bool {
		d.Within = within
		return g.Admit(d).Kind == None
	}
	if !fits(longest) {
		return 0
	}
	low, high := time.Duration(0), longest
	for high-low > max(high/100, time.Microsecond) {
		if mid := low + (high-low)/2; fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// of is the trouble of the i-th of those admitted.
func (g GPU) of(i int) Trouble {
	d := g.Admitted[i]
	switch {
	case d.alone() > d.Within:
		return Trouble{Kind: Long, Name: d.Name, Need: d.alone(), Within: d.Within, Free: d.Within, Beside: d.Beside}
	case d.Server:
		return g.request(i)
	default:
		return g.task(d)
	}
}

// task applies the processor-demand criterion at the deadline of one task: all work due by then
// must fit into the time until then.
func (g GPU) task(d Demand) Trouble {
	room := max(0, 1-g.Promised)
	due, burst := time.Duration(0), time.Duration(0)
	for _, s := range g.servers() { // requests come before tasks
		room -= s.load()
		burst += s.takes()
	}
	for _, o := range g.Admitted {
		if !o.Server && o.Within <= d.Within {
			due += o.Need
		}
	}
	free := time.Duration(max(0, room)*float64(d.Within)) - burst - g.Blocking - (due - d.Need)
	if d.Need <= free {
		return Trouble{}
	}
	return Trouble{Kind: Crowded, Name: d.Name, Need: d.Need, Within: d.Within, Free: max(0, free)}
}

// request computes the response time of a server's requests under round robin: before each of its
// turns every other process has one.
func (g GPU) request(i int) Trouble {
	d := g.Admitted[i]
	room, wait, turns, load := max(0, 1-g.Promised), g.Round+2*g.Switch, 1, 0.0
	for _, s := range g.servers() {
		if s.index == i {
			turns, load = s.turns, s.load()
			continue
		}
		room -= s.load()
		wait += min(s.Need, s.slice) + g.Switch
	}
	if load > room {
		return Trouble{Kind: Overload, Name: d.Name, Need: d.Need, Within: d.Within, Load: load, Room: max(0, room)}
	}
	within := min(d.Within, d.Every) // or the next request comes before it ends
	free := within - time.Duration(turns)*wait
	if d.Need <= free || g.late(i, turns) < g.Risk {
		return Trouble{}
	}
	return Trouble{Kind: Turns, Name: d.Name, Need: d.Need, Within: within, Free: max(0, free)}
}

// late approximates the part of a server's requests that are late if requests come at random: the
// tail of their waiting time falls exponentially.
func (g GPU) late(i, turns int) float64 {
	d := g.Admitted[i]
	spare := d.Within - d.Need - time.Duration(turns)*(g.Round+2*g.Switch)
	load, square := 0.0, 0.0 // of the requests' GPU time: the sum per second, and the sum of its squares
	for _, s := range g.servers() {
		load += s.load()
		square += s.load() * s.takes().Seconds()
	}
	if spare <= 0 || load >= 1 {
		return 1
	}
	return load * math.Exp(-2*(1-load)*spare.Seconds()/float64(turns)/square)
}

// server is one of those admitted.
type server struct {
	Demand
	index  int
	slice  time.Duration
	turns  int // per request
	change time.Duration
}

// takes is what a request takes of the GPU's time: each turn begins and ends with a switch.
func (s server) takes() time.Duration { return s.Need + 2*time.Duration(s.turns)*s.change }

// load is the part of the GPU's time that its requests take, 0 and more.
func (s server) load() float64 { return float64(s.takes()) / float64(max(s.Every, s.Usual)) }

// servers returns the admitted servers, the shortest deadline first.
func (g GPU) servers() []server {
	var all []server
	for i, d := range g.Admitted {
		if d.Server {
			all = append(all, server{Demand: d, index: i, change: g.Switch})
		}
	}
	slices.SortStableFunc(all, func(a, b server) int { return cmp.Compare(a.Within, b.Within) })
	for n := range all {
		s := &all[n]
		s.slice = max(g.Slice(n, all[0].Within), time.Nanosecond)
		s.turns = int((s.Need + s.slice - 1) / s.slice)
	}
	return all
}
