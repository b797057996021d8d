package actuator

import (
	"errors"
	"fmt"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/journal"
)

// HoldMode says how containers are kept from computing.
type HoldMode string

// The ways to hold.
const (
	HoldAuto  HoldMode = "auto"  // by the launch gate where it works, else by pausing
	HoldGate  HoldMode = "gate"  // by the launch gate; an error where it does not work
	HoldPause HoldMode = "pause" // by pausing at first sight
)

// HoldModes lists the values of HoldMode.
var HoldModes = []string{string(HoldAuto), string(HoldGate), string(HoldPause)}

func (o *Options) checkHold() error {
	switch o.Hold {
	case "":
		o.Hold = HoldAuto
	case HoldAuto, HoldGate, HoldPause:
	default:
		return fmt.Errorf("hold is %q; write one of %v", o.Hold, HoldModes)
	}
	if o.Hold == HoldGate && o.ContainerOf == nil {
		return errors.New("actuator: a launch gate needs ContainerOf")
	}
	return nil
}

// newEnforcer makes what holds containers: Docker's pause, and before it the
// launch gate.
func (o Options) newEnforcer(j *journal.Journal) (enforce.Enforcer, error) {
	engine, err := docker.Dial(o.DockerHost)
	if err != nil {
		return nil, err
	}
	pauser, err := docker.New(docker.Options{Engine: engine, Journal: j})
	if err != nil || o.Hold == HoldPause || o.ContainerOf == nil || o.DryRun {
		return pauser, err
	}
	return gate.NewEnforcer(gate.EnforcerOptions{
		Gate:   gate.Options{Name: gate.Name(o.StateDir), Container: o.ContainerOf, Logger: o.Logger},
		Pauser: pauser, Journal: j, Required: o.Hold == HoldGate, Longest: o.Config.MaxHold, Logger: o.Logger,
	}), nil
}
