package actuator

import (
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
)

// scheme is what a policy's name stands for.
type scheme struct {
	// order may look at the clock. late is Config.Late.
	order      func(now time.Time, late time.Duration) policy.Order
	preemption *plan.Preemption
	// share is how many run at once if Config.Share does not say.
	share string
	// fixed: no other share goes with it.
	fixed bool
	// expedites: a task can be moved to the front.
	expedites bool
	// pauses: who waits is paused, also where slices would do.
	pauses bool
}

var schemes = map[string]scheme{
	"edf":  {order: edf, preemption: plan.DefaultPreemption(), share: "adaptive", expedites: true},
	"llf":  {order: llf, preemption: plan.DefaultPreemption(), share: "adaptive", expedites: true},
	"fifo": {order: fifo, preemption: &plan.Preemption{Never: true}, share: "one"},
	// As the paper has it: whoever started first runs, at once.
	"p3": {order: fifo, share: "p3", fixed: true, pauses: true},
}

func fifo(time.Time, time.Duration) policy.Order { return policy.FIFO{} }

func edf(now time.Time, late time.Duration) policy.Order {
	return policy.LateLast{Placer: policy.EDF{Now: now}, Now: now, Late: late}
}

func llf(now time.Time, late time.Duration) policy.Order {
	return policy.LateLast{Placer: policy.LLF{Now: now}, Now: now, Late: late}
}

var rules = map[string]plan.Rule{"one": plan.One{}, "p3": plan.P3{}, "adaptive": plan.Adaptive{}}

// Policies lists the names that Config.Policy may have.
var Policies = []string{"edf", "llf", "fifo", "p3"}

// Shares lists what Config.Share may be; empty is the policy's own.
var Shares = []string{"one", "p3", "adaptive"}

func (c Config) scheme() scheme { return schemes[c.Policy] }

func (c Config) rule() plan.Rule {
	if c.Share != "" {
		return rules[c.Share]
	}
	return rules[c.scheme().share]
}

// Input begins the input of a plan: what the configuration says and nothing of
// what is true now.
func (c Config) Input(now time.Time) plan.Input {
	s := c.scheme()
	return plan.Input{Now: now, Order: s.order(now, c.Late), Rule: c.rule(), Preemption: s.preemption}
}

func (c Config) validateScheme() error {
	s, ok := schemes[c.Policy]
	switch {
	case !ok:
		return fmt.Errorf("policy %q is not known; write one of %v", c.Policy, Policies)
	case c.Share != "" && rules[c.Share] == nil:
		return fmt.Errorf("share %q is not known; write one of %v, or nothing for the policy's own", c.Share, Shares)
	case s.fixed && c.Share != "" && c.Share != s.share:
		return fmt.Errorf("policy %s says itself how many run at once; leave share out", c.Policy)
	}
	return nil
}
