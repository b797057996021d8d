// Package config holds the settings that decisions depend on.
//
// Pure: it imports the standard library, actuator/allocator, actuator/plan, actuator/policy and
// actuator/profile only.
package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/actuator/profile"
)

// Arbitration says when the policy decides who runs on a GPU.
type Arbitration string

// The ways of arbitration.
const (
	Auto   Arbitration = "auto"   // while an alert asks for it
	Always Arbitration = "always" // all the time, without an alert
	Never  Arbitration = "never"  // never; alerts that ask for it are only recorded
)

// Config is what can be changed while the actuator runs.
type Config struct {
	// Policy is one of profile.Names, Share how many run at once: one of profile.Shares, or
	// empty for the policy's own.
	Policy, Share string
	Arbitrate     Arbitration
	// Late is for how long a request of a server keeps its place once it is late.
	Late time.Duration
	// BatchFloor is the part of a GPU's time (above 0, up to 0.5) that class batch gets
	// while it wants it, whoever comes before it; tasks that are late get it, too.
	BatchFloor float64
	// MaxHold is the longest that a container is held in one piece.
	MaxHold time.Duration
	// Lease is how long an alert counts after it was last seen firing. The
	// sender must repeat it more often (Alertmanager's repeat_interval).
	Lease time.Duration
	// Settle is how long after an action the utilisation shows its effect.
	Settle time.Duration
	// BreakerActions bounds pauses and unpauses within a minute, BreakerShare the
	// share of the managed containers (if there are some) that are stopped at a
	// time, but for those that a person pauses, 0–1. Beyond, everything is released and nothing is held for a minute.
	BreakerActions int
	BreakerShare   float64
	// MemoryShare is how a GPU's memory is divided: one of allocator.Shares.
	MemoryShare allocator.Share
	// MemoryWait is the longest that an allocation waits for memory; then the
	// program is told that there is none.
	MemoryWait time.Duration
}

// Defaults of a Config.
const (
	DefaultPolicy     = "edf"
	DefaultLate       = policy.DefaultLate
	DefaultBatchFloor = plan.DefaultFloor
	DefaultMaxHold    = 10 * time.Minute
	DefaultLease      = 5 * time.Minute
	DefaultSettle     = 400 * time.Millisecond
	// DefaultMemoryWait is how long an allocation waits for memory.
	DefaultMemoryWait = 5 * time.Minute
	// DefaultBreakerActions lets 300 tasks a minute be held once each.
	DefaultBreakerActions = 600
	// DefaultBreakerShare: all at once. Arbitration always lets somebody run, so
	// that can only be a storm.
	DefaultBreakerShare = 1.0
)

// maxFloor leaves half of the time for those that come first.
const maxFloor = 0.5

// DefaultConfig is what a program begins with to which flags say something else: a zero is
// then what somebody wrote, which Validate refuses, and not what was left out.
func DefaultConfig() Config { return Config{}.WithDefaults() }

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.Policy == "" {
		c.Policy = DefaultPolicy
	}
	if c.Arbitrate == "" {
		c.Arbitrate = Auto
	}
	if c.Late == 0 {
		c.Late = DefaultLate
	}
	if c.BatchFloor == 0 {
		c.BatchFloor = DefaultBatchFloor
	}
	if c.MaxHold == 0 {
		c.MaxHold = DefaultMaxHold
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Settle == 0 {
		c.Settle = DefaultSettle
	}
	if c.MemoryShare == "" {
		c.MemoryShare = allocator.ByLimit
	}
	if c.MemoryWait == 0 {
		c.MemoryWait = DefaultMemoryWait
	}
	if c.BreakerActions == 0 {
		c.BreakerActions = DefaultBreakerActions
	}
	if c.BreakerShare == 0 {
		c.BreakerShare = DefaultBreakerShare
	}
	return c
}

// Validate says what is wrong and what to write instead.
func (c Config) Validate() error {
	if _, err := profile.Of(c.Policy, c.Share); err != nil {
		return err
	}
	switch c.Arbitrate {
	case Auto, Always, Never:
	default:
		return fmt.Errorf("arbitrate is %q; write auto, always or never", c.Arbitrate)
	}
	if c.Late <= 0 {
		return fmt.Errorf("late is %v; it must be longer than 0", c.Late)
	}
	if !(c.BatchFloor > 0 && c.BatchFloor <= maxFloor) {
		return fmt.Errorf("batch-floor is %v; write a part of the time above 0 and up to %v", c.BatchFloor, maxFloor)
	}
	if c.MaxHold < time.Second || c.Lease < time.Second {
		return fmt.Errorf("max-hold (%v) and lease (%v) must be at least 1s", c.MaxHold, c.Lease)
	}
	if c.Settle <= 0 {
		return fmt.Errorf("settle is %v; it must be longer than 0", c.Settle)
	}
	if !slices.Contains(allocator.Shares, string(c.MemoryShare)) {
		return fmt.Errorf("memory-share is %q; write one of %v", c.MemoryShare, allocator.Shares)
	}
	if c.MemoryWait < time.Second {
		return fmt.Errorf("memory-wait is %v; it must be at least 1s", c.MemoryWait)
	}
	if c.BreakerActions < 1 || !(c.BreakerShare > 0 && c.BreakerShare <= 1) {
		return fmt.Errorf("breaker: %d actions a minute and a share of %v; write at least 1, and a share above 0 and up to 1", c.BreakerActions, c.BreakerShare)
	}
	return nil
}

// Profile is that of the policy. The configuration must be valid.
func (c Config) Profile() profile.Profile {
	p, err := profile.Of(c.Policy, c.Share)
	if err != nil {
		panic(err) // Validate says so before
	}
	return p
}

// Input begins the input of a plan: what the configuration says and nothing of what is true
// now.
func (c Config) Input(now time.Time) plan.Input { return c.Profile().Input(now, c.Late) }
