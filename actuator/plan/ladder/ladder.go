// Package ladder decides how the time of one GPU is divided where an enforcer can set
// time slices and take a process's channels off the GPU: which slice each process
// has, and who is off for how long, each with its reason.
//
// Everybody may compute. The order of package policy makes a ladder of slices, shares
// and floors make proportions of it, and somebody is off only where slices cannot give
// what was promised. README.md tells the rules, and how the arbiter calls it.
//
// Pure: it imports the standard library and actuator/policy only. A plan
// that is carried out and made again at the same moment changes nothing.
package ladder

import (
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// What is known of NVIDIA's time slicing: measured on an H200, see README.md.
const (
	// DefaultSlice is what libcuda gives the compute channel group of a process.
	DefaultSlice = 2048 * time.Microsecond
	// SwitchCost is what a switch from one process to another takes of the GPU's time.
	SwitchCost = 400 * time.Microsecond
)

// Wants says whether a process has work for the GPU now.
type Wants int

// What is known about it. Who is Unknown counts as wanting it.
const (
	Unknown Wants = iota
	Yes
	No
)

// Tenant is one process on the GPU, with its compute channel groups.
type Tenant struct {
	// ID names the process for as long as it lives; opaque. Container is the id of its
	// container: a share is the container's, and its processes divide it. Name is what
	// reasons call it.
	ID, Container, Name string
	// Labelled: its container carries a laxity.* label. Never: laxity.pause=never.
	// Without the one or with the other it is left as it is, and its part of the GPU with it.
	Labelled, Never bool
	// HasTask: it has an unfinished task, which is Job. A server between two requests has none.
	HasTask bool
	Job     policy.Job
	// Server: its tasks are requests (laxity.release=busy) with a deadline that counts,
	// Deadline after their start.
	Server   bool
	Deadline time.Duration
	// Share of the GPU's time that its container is sure of, 0–1; 0: none.
	Share float64
	Wants Wants
	// Got is the GPU time that it has had so far, if Measured. It only grows.
	Got      time.Duration
	Measured bool
	// KeepOn says why it must not be off: it is on several GPUs, a person let it go on,
	// it is being checkpointed or debugged. Else empty.
	KeepOn string
	// Asked says why a person or an alert wants it off, until AskedUntil (zero: for as
	// long as it is said). Else empty.
	Asked      string
	AskedUntil time.Time
	// Later: it is left as it stands in this plan, since it cannot be changed yet: it has no
	// channels so far, say. The others stand as if it could.
	Later bool
	// Stands is what is in force now, as far as it is on record.
	Stands Standing
}

// Standing is what the plan gives a process.
type Standing struct {
	// Rank is its place in the queue, from 1; 0: it is in no queue.
	Rank int
	// Slice of each of its compute groups, also of one that is off: it counts when it is
	// on again. In the input 0 is DefaultSlice: nobody has set one.
	Slice time.Duration
	// Off: its channels are off the GPU, until Until at the latest. Whoever carries that
	// out puts them on then, also without another plan.
	Off    bool
	Until  time.Time
	Reason string
}

// slice that is in force.
func (s Standing) slice() time.Duration {
	if s.Slice == 0 {
		return DefaultSlice
	}
	return s.Slice
}

// Limits bound what is done. The zero value means the defaults.
type Limits struct {
	// MaxOff is how long somebody is off at a time unless a person or an alert asked for
	// it; DefaultMaxOff if 0. MaxHold is the same where they asked; DefaultMaxHold if 0.
	MaxOff, MaxHold time.Duration
	// Calls is how many changes are made in a second, on average; DefaultCalls if 0.
	// As many may come at once.
	Calls float64
	// NoOff: channels cannot be taken off here. Turns are then given by slices alone.
	NoOff bool
}

// The defaults of Limits.
const (
	DefaultMaxOff  = time.Second
	DefaultMaxHold = 5 * time.Minute
	DefaultCalls   = 50
)

// Input is everything that a plan for one GPU (or MIG instance) depends on, but for State.
type Input struct {
	Now   time.Time
	Order policy.Order
	// Floor is the part of the GPU's time that those get whom others come before
	// (--batch-floor), 0–0.5; DefaultFloor if 0.
	Floor   float64
	Tenants []Tenant
	Limits  Limits
}

// DefaultFloor is the part of a GPU's time that those get that others come before.
const DefaultFloor = 0.05

// Change is one call that carries the plan out.
type Change struct {
	Tenant string // its ID
	// Set: the slice is to become Standing.Slice. Switch: its channels are to go off, or
	// on. One of the two; who needs both has two changes.
	Set, Switch bool
	Standing    Standing
}

// Plan is what is to stand on one GPU.
type Plan struct {
	// Standings of the labelled processes, by id. Where calls were bounded it is what
	// stood before.
	Standings map[string]Standing
	// Changes to what stands, to be carried out in this order, one after another.
	Changes []Change
	// Again is when to plan again if nothing happens meanwhile; zero: no need.
	Again time.Time
	// Report says what cannot be kept of what labels promise; empty: nothing.
	Report string
	// State to hand in with the next plan.
	State State
}

// State is what a plan has to know of the ones before. The zero value begins.
type State struct {
	queue   []string             // the last order of those in the queue
	queueAt time.Time            // since when
	behind  map[string]time.Time // since when each has been behind others of its place
	turn    turn
	asked   map[string]time.Time // since when each has been off because somebody asked
	bucket  bucket
	load    load
}
