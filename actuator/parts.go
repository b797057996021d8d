package actuator

import (
	"cmp"
	"fmt"

	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/journal"
)

func (o *Options) checkHold() error {
	switch o.Hold {
	case "":
		o.Hold = config.HoldAuto
	case config.HoldAuto, config.HoldChannels, config.HoldPause:
	default:
		return fmt.Errorf("hold is %q; write one of %v", o.Hold, config.HoldModes)
	}
	if o.Hold == config.HoldChannels && !o.byChannels() && !o.DryRun {
		return fmt.Errorf("time slices and channels cannot be controlled here (--hold=auto works without): %s", cmp.Or(o.NoChannels, "this program was not given a way to"))
	}
	return nil
}

// byChannels reports whether the time of GPUs is divided by channels.
func (o Options) byChannels() bool {
	return o.Channels != nil && o.NoChannels == "" && o.Hold.Channels() && !o.DryRun
}

// newChannels opens what divides the time of GPUs; nil where nothing does.
func (o Options) newChannels() (arbiter.Channels, error) {
	if o.NewChannels != nil {
		return o.NewChannels()
	}
	if !o.byChannels() {
		if o.NoChannels != "" {
			o.Logger.Warn("time slices and channels cannot be controlled: containers that wait are paused", "reason", o.NoChannels)
		}
		return nil, nil //nolint:nilnil // there is none
	}
	return channels.New(channels.Options{Driver: o.Channels, Logger: o.Logger, Dir: o.channelsDir()})
}

// newEnforcer makes what pauses containers.
func (o Options) newEnforcer(j *journal.Journal) (enforce.Enforcer, error) {
	if o.NewEnforcer != nil {
		return o.NewEnforcer(j)
	}
	engine, err := docker.Dial(o.DockerHost)
	if err != nil {
		return nil, err
	}
	return docker.New(docker.Options{Engine: engine, Journal: j})
}

func (o *Options) checkMemory() error {
	for name, m := range map[string]*config.MemoryMode{"memory-guard": &o.MemoryGuard, "swap": &o.Swap} {
		switch *m {
		case "":
			*m = config.MemoryAuto
		case config.MemoryAuto, config.MemoryOff:
		default:
			return fmt.Errorf("%s is %q; write one of %v", name, *m, config.MemoryModes)
		}
	}
	return nil
}

// newMemoryGuard makes what guards allocations of GPU memory; nil where nothing does.
func (o Options) newMemoryGuard(decider memory.Decider) (arbiter.MemoryGuard, error) {
	switch {
	case o.DryRun || o.MemoryGuard == config.MemoryOff:
		return nil, nil //nolint:nilnil // there is none
	case o.NewMemoryGuard != nil:
		g, err := o.NewMemoryGuard(decider)
		if err != nil {
			return nil, fmt.Errorf("memory guard (--memory-guard=off works without): %w", err)
		}
		return g, nil
	case o.OpenMemoryLedger == nil || o.ContainerOf == nil:
		return nil, nil //nolint:nilnil // there is none
	}
	return memory.NewService(memory.Options{
		Name: memory.Name(o.StateDir), Container: o.ContainerOf, Decider: decider, MaxWait: o.Config.MaxHold, Logger: o.Logger,
	}, o.OpenMemoryLedger), nil
}

// newSwapper makes what swaps containers off their GPUs; nil where nothing does.
func (o Options) newSwapper() (enforce.Swapper, error) {
	if o.DryRun || o.Swap == config.MemoryOff || o.NewSwapper == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	s, err := o.NewSwapper()
	if err != nil {
		return nil, fmt.Errorf("swapping (--swap=off works without): %w", err)
	}
	return s, nil
}

// channelsDir is where slices and channels are on record.
func (o Options) channelsDir() string { return channels.Folder(o.RunDir, o.StateDir) }
