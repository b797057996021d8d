package mechanism

import (
	"cmp"
	"fmt"

	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/exporter/task"
)

// Options say which mechanisms are used. The zero value pauses containers and does nothing else.
type Options struct {
	// Hold says how containers are kept from computing; config.HoldAuto by default.
	Hold config.HoldMode
	// SeveralGPUs says what is done with a container on several GPUs, and with the containers of a gang;
	// config.SeveralNever by default.
	SeveralGPUs config.SeveralMode
	// Channels controls time slices and channels of processes; nil: this machine cannot.
	Channels channels.Driver
	// NoChannels says why Channels may only undo: for instance, a self-test failed. Empty:
	// Channels divides the time of GPUs.
	NoChannels string
	// Instances says on which MIG instances Channels may be used.
	Instances config.Instances
	// ChannelsProven says by what Channels is known to work, for people.
	ChannelsProven string
	// MemoryGuard says whether allocations of GPU memory are guarded, Swap whether
	// containers are swapped off their GPUs; both Auto by default: where this machine can.
	MemoryGuard, Swap config.MemoryMode
	// ContainerOf returns the id of the container that a process of this machine
	// belongs to. Without it there is no memory guard.
	ContainerOf func(pid int) (id string, ok bool, err error)
	// OpenUsage opens what reads how much GPU memory each process holds now.
	// Without it no allocations are guarded.
	OpenUsage func() (task.UsageReader, error)

	// NewEnforcer replaces the container engine.
	NewEnforcer func(*journal.Journal) (enforce.Enforcer, error)
	// NewChannels, NewMemoryGuard and NewSwapper replace those of this machine; nil, without an
	// error, is none. Without NewSwapper nothing is swapped.
	NewChannels    func() (arbiter.Channels, error)
	NewMemoryGuard func(memory.Decider) (arbiter.MemoryGuard, error)
	NewSwapper     func() (enforce.Swapper, error)
}

// Checked returns the options with their defaults. The error says what to write instead.
func (o Options) Checked(dryRun bool) (Options, error) {
	switch o.Hold {
	case "":
		o.Hold = config.HoldAuto
	case config.HoldAuto, config.HoldChannels, config.HoldPause:
	default:
		return o, fmt.Errorf("hold is %q; write one of %v", o.Hold, config.HoldModes)
	}
	switch o.SeveralGPUs {
	case "":
		o.SeveralGPUs = config.SeveralNever
	case config.SeveralNever, config.SeveralAsOne:
	default:
		return o, fmt.Errorf("several-gpus is %q; write one of %v", o.SeveralGPUs, config.SeveralModes)
	}
	if o.Hold == config.HoldChannels && !o.byChannels() && !dryRun {
		return o, fmt.Errorf("time slices and channels cannot be controlled here (--hold=auto works without): %s", cmp.Or(o.NoChannels, "this program was not given a way to"))
	}
	for name, m := range map[string]*config.MemoryMode{"memory-guard": &o.MemoryGuard, "swap": &o.Swap} {
		switch *m {
		case "":
			*m = config.MemoryAuto
		case config.MemoryAuto, config.MemoryOff:
		default:
			return o, fmt.Errorf("%s is %q; write one of %v", name, *m, config.MemoryModes)
		}
	}
	return o, nil
}

// byChannels reports whether the time of GPUs is divided by channels.
func (o Options) byChannels() bool {
	return o.Channels != nil && o.NoChannels == "" && o.Hold.Channels()
}
