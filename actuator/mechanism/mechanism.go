// Package mechanism opens the mechanisms by which an actuator acts: what pauses containers, what
// divides the time of GPUs, what guards GPU memory, and what swaps. The options say which of them
// are used.
package mechanism

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/pausing"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/statefolder"
)

// Surroundings are what the mechanisms share with the rest of the actuator. All but Engine and
// DryRun are required.
type Surroundings struct {
	StateDir string
	// State names that folder.
	State statefolder.ID
	// ChannelsDir is where slices and channels are on record.
	ChannelsDir string
	// Engine is the container engine.
	Engine engine.Choice
	// DryRun makes no mutating call.
	DryRun  bool
	Journal *journal.Journal
	// Decider says who gets GPU memory.
	Decider memory.Decider
	// MaxWait is how long an allocation waits for memory at most.
	MaxWait time.Duration
	Logger  *slog.Logger
}

// Mechanisms are those of one actuator.
type Mechanisms struct {
	Enforcer    enforce.Enforcer
	Channels    arbiter.Channels    // nil: the time of GPUs is not divided
	MemoryGuard arbiter.MemoryGuard // nil: allocations are not guarded
	Swapper     enforce.Swapper     // nil: nothing is swapped
}

// Open opens what the options, which Checked returned, ask for.
func (o Options) Open(s Surroundings) (m Mechanisms, err error) {
	if m.Enforcer, err = o.enforcer(s); err != nil {
		return m, err
	}
	if m.Channels, err = o.channels(s); err != nil {
		return m, err
	}
	if m.MemoryGuard, err = o.memoryGuard(s); err != nil {
		return m, err
	}
	m.Swapper, err = o.swapper(s)
	return m, err
}

// Close ends what runs in processes of its own. What is held stays so, on record.
func (m Mechanisms) Close() error {
	if s, ok := m.Swapper.(io.Closer); ok { // its helper is a process
		return s.Close()
	}
	return nil
}

func (o Options) enforcer(s Surroundings) (e enforce.Enforcer, err error) {
	if o.NewEnforcer != nil {
		e, err = o.NewEnforcer(s.Journal)
	} else {
		e, err = pausing.Open(s.Engine, s.Journal)
	}
	if err != nil {
		return nil, err
	}
	if s.DryRun {
		return &enforce.Dry{Real: e}, nil
	}
	return e, nil
}

func (o Options) channels(s Surroundings) (arbiter.Channels, error) {
	if o.NewChannels != nil {
		return o.NewChannels()
	}
	if !o.byChannels() || s.DryRun {
		return nil, nil //nolint:nilnil // there is none
	}
	return channels.New(channels.Options{Driver: o.Channels, Logger: s.Logger, Dir: s.ChannelsDir, AsOne: o.SeveralGPUs == config.SeveralAsOne})
}

func (o Options) memoryGuard(s Surroundings) (arbiter.MemoryGuard, error) {
	switch {
	case s.DryRun || o.MemoryGuard == config.MemoryOff:
		return nil, nil //nolint:nilnil // there is none
	case o.NewMemoryGuard != nil:
		g, err := o.NewMemoryGuard(s.Decider)
		if err != nil {
			return nil, fmt.Errorf("memory guard (--memory-guard=off works without): %w", err)
		}
		return g, nil
	case o.OpenUsage == nil || o.ContainerOf == nil:
		return nil, nil //nolint:nilnil // there is none
	}
	return memory.NewService(memory.Options{
		Name: memory.Name(s.State), Container: o.ContainerOf, Decider: s.Decider, MaxWait: s.MaxWait, Logger: s.Logger,
	}, o.OpenUsage), nil
}

func (o Options) swapper(s Surroundings) (enforce.Swapper, error) {
	off := o.Swap == config.MemoryOff
	if s.DryRun || o.NewSwapper == nil || off && !swappedOut(s.StateDir) {
		return nil, nil //nolint:nilnil // there is none
	}
	w, err := o.NewSwapper()
	switch {
	case err != nil && off: // the guardian of this actuator tries again when it ends
		s.Logger.Error("containers that are swapped out cannot be brought back now", "err", err)
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("swapping (--swap=off works without): %w", err)
	case off && w != nil:
		return bringsBack{w}, nil
	}
	return w, nil
}

// swappedOut reports whether a former actuator has left containers swapped out.
func swappedOut(stateDir string) bool {
	n, err := checkpoint.Recorded(stateDir)
	return err != nil || n > 0
}

// bringsBack swaps in what a former actuator has swapped out, and nothing out: swapping is off by now.
type bringsBack struct{ enforce.Swapper }

func (bringsBack) Can(context.Context, string) error {
	return fmt.Errorf("%w: swapping is off (--swap=off)", enforce.ErrCannotSwap)
}

func (b bringsBack) Suspend(ctx context.Context, id, _, _ string) (enforce.SwapResult, error) {
	return enforce.SwapResult{}, b.Can(ctx, id)
}

func (b bringsBack) Close() error {
	if c, ok := b.Swapper.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
