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
	id := c.GangID()
	switch {
	case computesByMPS(c):
		return state.ByMPS, "it computes through an MPS server, and its channels are the server's and other containers', too"
	case id == "":
		return "", ""
	case k.facts.mpsIn[id] != "":
		return state.ByMPS, fmt.Sprintf("it is of the gang %s, of which %s computes through an MPS server, whose channels are other containers', too", c.Spec.Gang, k.facts.mpsIn[id])
	case k.facts.conflicts[id] != "":
		return state.ByConflict, fmt.Sprintf("the labels of the gang %s disagree: %s", c.Spec.Gang, k.facts.conflicts[id])
	case !k.divides():
		return state.ByGang, fmt.Sprintf("it is of the gang %s, whose containers would not be paused and go on as one", c.Spec.Gang)
	case !k.o.AsOne:
		return state.ByGang, fmt.Sprintf("it is of the gang %s, which is ordered with --several-gpus=as-one only", c.Spec.Gang)
	}
	return "", ""
}

func computesByMPS(c task.Container) bool {
	return slices.ContainsFunc(c.Processes, func(p task.Process) bool { return p.MPS })
}

// membersByMPS names, by GangID, a member of each gang that computes through an MPS server.
func membersByMPS(list []task.Container) map[string]string {
	out := map[string]string{}
	for _, c := range list {
		if id := c.GangID(); id != "" && computesByMPS(c) {
			out[id] = c.Name
		}
	}
	return out
}
