// Package profile says what the name of a policy stands for: its order, when it preempts, how
// many run at once.
//
// Pure: it imports the standard library, actuator/policy and actuator/plan only.
package profile

import (
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
)

// Profile is what a policy's name stands for.
type Profile struct {
	// Order may look at the clock. late is for how long a late request keeps its place.
	Order      func(now time.Time, late time.Duration) policy.Order
	Preemption *plan.Preemption
	// Share is how many run at once if Config.Share does not say.
	Share string
	// Fixed: no other share goes with it.
	Fixed bool
	// Expedites: a task can be moved to the front.
	Expedites bool
	// Pauses: containers that wait are paused, also where slices would do.
	Pauses bool
	// Relieves: containers are stopped because a GPU's memory is nearly full. That frees nothing for
	// those that run, and what is stopped ends later than without us.
	Relieves bool
}

var profiles = map[string]Profile{
	"edf":  {Order: edf, Preemption: plan.DefaultPreemption(), Share: "adaptive", Expedites: true},
	"llf":  {Order: llf, Preemption: plan.DefaultPreemption(), Share: "adaptive", Expedites: true},
	"fifo": {Order: fifo, Preemption: &plan.Preemption{Never: true}, Share: "one"},
	// As the paper has it: whoever started first runs, at once.
	"p3": {Order: fifo, Share: "p3", Fixed: true, Pauses: true, Relieves: true},
}

func fifo(time.Time, time.Duration) policy.Order { return policy.FIFO{} }

func edf(now time.Time, late time.Duration) policy.Order {
	return policy.LateLast{Placer: policy.EDF{Now: now}, Now: now, Late: late}
}

func llf(now time.Time, late time.Duration) policy.Order {
	return policy.LateLast{Placer: policy.LLF{Now: now}, Now: now, Late: late}
}

var rules = map[string]plan.Rule{"one": plan.One{}, "p3": plan.P3{}, "adaptive": plan.Adaptive{}}

// Names lists the policies.
var Names = []string{"edf", "llf", "fifo", "p3"}

// Shares lists the rules of how many run at once; "" stands for the policy's own.
var Shares = []string{"one", "p3", "adaptive"}

// Of returns the profile of a policy, with the rule named share in place of its own; share may
// be empty. The error says what to write instead.
func Of(name, share string) (Profile, error) {
	p, ok := profiles[name]
	switch {
	case !ok:
		return Profile{}, fmt.Errorf("policy %q is not known; write one of %v", name, Names)
	case share != "" && rules[share] == nil:
		return Profile{}, fmt.Errorf("share %q is not known; write one of %v, or nothing for the policy's own", share, Shares)
	case p.Fixed && share != "" && share != p.Share:
		return Profile{}, fmt.Errorf("policy %s says itself how many run at once; leave share out", name)
	case share != "":
		p.Share = share
	}
	return p, nil
}

// Rule says how many run at once.
func (p Profile) Rule() plan.Rule { return rules[p.Share] }

// Input begins the input of a plan: what the profile says and nothing of what is true now.
func (p Profile) Input(now time.Time, late time.Duration) plan.Input {
	return plan.Input{Now: now, Order: p.Order(now, late), Rule: p.Rule(), Preemption: p.Preemption}
}
