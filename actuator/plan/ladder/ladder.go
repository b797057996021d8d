// Package ladder decides how the time of one GPU is divided where an enforcer can set time slices
// and take a process's channels off the GPU: which slice each process has, which processes are off
// and for how long, each with its reason.
//
// Every process may compute. The order of package policy becomes a ladder of slices; shares and
// floors become proportions; a process is off only where slices cannot give what was promised, the
// order among it.
// README.md states the rules, and how the arbiter calls the package.
//
// Pure: it imports the standard library and actuator/policy only. A plan that was carried out and
// is made again at the same moment changes nothing.
package ladder

import (
	"cmp"
	"time"

	"github.com/laxity/laxity/actuator/policy"
)

// NVIDIA's time slicing, as measured on an H200: see README.md.
const (
	// DefaultSlice is the slice that libcuda gives the compute channel group of a process.
	DefaultSlice = 2048 * time.Microsecond
	// SwitchCost is the GPU time that a switch from one process to another takes.
	SwitchCost = 400 * time.Microsecond
)

// Wants says whether a process has work for the GPU now.
type Wants int

// The values. A process that is Unknown counts as wanting the GPU.
const (
	Unknown Wants = iota
	Yes
	No
)

// Tenant is one process on the GPU, with its compute channel groups.
type Tenant struct {
	// ID identifies the process while it lives; opaque. Container is the id of its container, whose
	// processes divide its share. Name is its name in reasons.
	ID, Container, Name string
	// Labelled: its container carries one of Laxity's labels. Never: laxity.pause=never. A process without
	// a label, or with never, is left alone, and so is its part of the GPU.
	Labelled, Never bool
	// HasTask: it has an unfinished task, which is Job. A server between two requests has none.
	HasTask bool
	Job     policy.Job
	// Server: its tasks are requests (laxity.release=busy) with a deadline that counts. Deadline is
	// relative to each request's start.
	Server   bool
	Deadline time.Duration
	// Share is the part of the GPU's time that its container is sure of, 0–1; 0: none.
	Share float64
	Wants Wants
	// Got is the GPU time that it has had so far, valid if Measured. It only grows.
	Got      time.Duration
	Measured bool
	// Exact: Got is right to a few percent of each second. The driver's samples, five a second, are not:
	// they beat with the time slices.
	Exact bool
	// Used is the part of Input.Switches' time that it had, 0–1, valid if Exact.
	Used float64
	// Stay is how long its contexts stayed on the GPU each time, on average, by Input.Switches; 0: not
	// known.
	Stay time.Duration
	// KeepOn says why it must not be off: it is on several GPUs, a person released it, it is being
	// checkpointed or debugged. Else empty.
	KeepOn string
	// Asked says why it must be off although its turn may have come: a person or an alert has it paused. Its
	// host side stands still. Else empty.
	Asked string
	// Bound names the GPU whose plan takes it off and on, if it is on several GPUs and that is
	// another one. Here it is off or on as that plan says, and gets a slice. Else empty.
	Bound string
	// Later: this plan leaves it as it is, since it cannot be changed yet; it has no channels so
	// far, for instance. The other processes are planned as if it could.
	Later bool
	// Stands is what is in force now, by the record.
	Stands Standing
}

// Standing is what the plan gives a process.
type Standing struct {
	// Rank is its place in the queue, from 1; 0: it is in no queue.
	Rank int
	// Slice of each of its compute groups. For a process that is off it counts once it is on again.
	// In the input 0 is DefaultSlice: nobody has set one.
	Slice time.Duration
	// Off: its channels are off the GPU, until Until at the latest. The enforcer switches them on
	// then, even without another plan.
	Off    bool
	Until  time.Time
	Reason string
}

// slice is the slice in force.
func (s Standing) slice() time.Duration {
	if s.Slice == 0 {
		return DefaultSlice
	}
	return s.Slice
}

// Limits bound what a plan does. The zero value means the defaults.
type Limits struct {
	// MaxHold bounds a wait for equals that are expected to end; DefaultMaxHold if 0.
	MaxHold time.Duration
	// Calls is the number of changes per second on average, and the most at once; DefaultCalls if 0.
	Calls float64
}

func (l Limits) maxHold() time.Duration { return cmp.Or(l.MaxHold, DefaultMaxHold) }

// The defaults of Limits.
const (
	DefaultMaxHold = 5 * time.Minute
	DefaultCalls   = 50
)

// MaxOff is how long a process is off at a time. For one that is Asked to be off it is how long that lasts
// without another plan.
const MaxOff = time.Second

// Input is everything that a plan for one GPU (or MIG instance) depends on, except State.
type Input struct {
	Now   time.Time
	Order policy.Order
	// Floor is the part of the GPU's time (--batch-floor) for the processes that others come before,
	// 0–0.5; DefaultFloor if 0.
	Floor   float64
	Tenants []Tenant
	Limits  Limits
	// Switches is what was last read of the GPU's context switches; zero: nothing.
	Switches Switches
	// Greedy: processes that are not ours to act on take what one that is off leaves, or may: they use a
	// good part of the GPU.
	Greedy bool
}

// Switches are the context switches of a GPU in some time.
type Switches struct {
	From time.Time     // when that time began
	For  time.Duration // how long it was
	Rate float64       // contexts that came onto the GPU each second
}

func (s Switches) to() time.Time { return s.From.Add(s.For) }

// DefaultFloor is the part of a GPU's time for the processes that others come before.
const DefaultFloor = 0.05

// Change is one call that carries out a part of the plan.
type Change struct {
	Tenant string // its ID
	// Set: the slice becomes Standing.Slice. Switch: the channels go off, or on. Exactly one is
	// true; a process that needs both has two changes.
	Set, Switch bool
	Standing    Standing
}

// Plan is the planned state of one GPU.
type Plan struct {
	// Standings of the labelled processes, by id. A change that was put off leaves the standing as
	// it was.
	Standings map[string]Standing
	// Changes lead to the Standings. They must be carried out one after another, in this order.
	Changes []Change
	// Again is when to plan again if nothing happens before; zero: no need.
	Again time.Time
	// Report says which promises of labels cannot be kept; empty: none.
	Report string
	// State goes into the next plan.
	State State
}

// State is what a plan must know of earlier plans. The zero value is the start.
type State struct {
	queue   []string        // the last order of the queue
	queueAt time.Time       // since when
	waits   map[string]wait // of the queue
	turn    turn
	bucket  bucket
	load    load
}
