package actuator

import (
	"cmp"
	"fmt"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/journal"
)

// HoldMode says how containers are kept from computing.
type HoldMode string

// The ways to hold.
const (
	HoldAuto     HoldMode = "auto"     // by channels where they work, else by pausing
	HoldChannels HoldMode = "channels" // by time slices, and channels off and on; an error where that does not work
	HoldPause    HoldMode = "pause"    // by pausing
)

// HoldModes lists the values of HoldMode.
var HoldModes = []string{string(HoldAuto), string(HoldChannels), string(HoldPause)}

// Channels reports whether channels are wanted.
func (h HoldMode) Channels() bool { return h == "" || h == HoldAuto || h == HoldChannels }

func (o *Options) checkHold() error {
	switch o.Hold {
	case "":
		o.Hold = HoldAuto
	case HoldAuto, HoldChannels, HoldPause:
	default:
		return fmt.Errorf("hold is %q; write one of %v", o.Hold, HoldModes)
	}
	if o.Hold == HoldChannels && !o.byChannels() && !o.DryRun {
		return fmt.Errorf("time slices and channels cannot be controlled here (--hold=auto works without): %s", cmp.Or(o.NoChannels, "this program was not given a way to"))
	}
	return nil
}

// byChannels reports whether the time of GPUs is divided by channels.
func (o Options) byChannels() bool {
	return o.Channels != nil && o.NoChannels == "" && o.Hold.Channels() && !o.DryRun
}

// newChannels opens what divides the time of GPUs; nil where nothing does.
func (o Options) newChannels() (Channels, error) {
	if !o.byChannels() {
		if o.NoChannels != "" {
			o.Logger.Warn("time slices and channels cannot be controlled: who waits is paused", "reason", o.NoChannels)
		}
		return nil, nil //nolint:nilnil // there is none
	}
	return openChannels(o.Channels, o.RunDir, o.StateDir, o.Logger)
}

// newEnforcer makes what pauses containers.
func (o Options) newEnforcer(j *journal.Journal) (enforce.Enforcer, error) {
	engine, err := docker.Dial(o.DockerHost)
	if err != nil {
		return nil, err
	}
	return docker.New(docker.Options{Engine: engine, Journal: j})
}
