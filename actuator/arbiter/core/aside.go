package core

import (
	"fmt"
	"slices"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// aside says why a container is left as it is, whatever its labels ask for: no order can be kept
// for it alone. The cause is empty where it is not left so.
func (k *Core) aside(c task.Container) (cause state.Cause, why string) {
	if cause, why = k.asideAlone(c); cause != "" || c.Spec.Gang == "" {
		return cause, why
	}
	id, instances := c.GangID(), false
	for _, m := range k.facts.snap.Containers {
		if m.GangID() != id {
			continue
		}
		if cause, why := k.asideAlone(m); cause != "" {
			return cause, fmt.Sprintf("it is of the gang %s, and of %s: %s", c.Spec.Gang, m.Name, why)
		}
		instances = instances || len(k.instancesOf(m)) > 0
	}
	gang := "it is of the gang " + c.Spec.Gang
	switch {
	case k.facts.conflicts[id] != "":
		return state.ByConflict, fmt.Sprintf("the labels of the gang %s disagree: %s", c.Spec.Gang, k.facts.conflicts[id])
	case !k.divides():
		return state.ByGang, gang + ", whose containers would not be paused and go on as one"
	case !k.o.AsOne:
		return state.ByGang, gang + ", which is ordered with --several-gpus=as-one only"
	case instances && !k.o.Instances.All:
		return state.ByMIG, gang + ", and on MIG instances nothing has shown yet that a gang goes off and on as one"
	}
	return "", ""
}

// asideAlone is aside without its gang.
func (k *Core) asideAlone(c task.Container) (cause state.Cause, why string) {
	if slices.ContainsFunc(c.Processes, func(p task.Process) bool { return p.MPS }) {
		return state.ByMPS, "it computes through an MPS server, and its channels are the server's and other containers', too"
	}
	if !k.divides() { // a pause works on instances as anywhere
		return "", ""
	}
	on := k.instancesOf(c)
	for _, uuid := range on {
		if why := k.o.Instances.Unproven(uuid); why != "" {
			return state.ByMIG, fmt.Sprintf("it computes on the MIG instance %s, where channels are not known to be controllable: %s", uuid, why)
		}
	}
	if len(on) > 1 && !k.o.Instances.All {
		return state.ByMIG, "it computes on several MIG instances, and nothing has shown yet that it goes off and on as one there"
	}
	return "", ""
}

// instancesOf are the MIG instances that a container computes on, by UUID, sorted.
func (k *Core) instancesOf(c task.Container) (on []string) {
	s := k.facts.snap
	if !slices.ContainsFunc(s.GPUs, func(g task.GPU) bool { return g.Parent != "" }) {
		return nil
	}
	var used []string
	for _, p := range c.Processes {
		used = append(used, p.GPUs...)
	}
	for _, t := range s.Tasks {
		if t.ContainerID == c.ID {
			used = append(used, t.GPUs...) // also of a process that the device does not list yet
		}
	}
	slices.Sort(used)
	for _, uuid := range slices.Compact(used) {
		if g, known := s.FindGPU(uuid); known && g.Parent != "" {
			on = append(on, uuid)
		}
	}
	return on
}
