package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// Allow is a list of Docker labels, key or key=value. A container with none of them is only
// observed. An empty list allows every container.
type Allow []string

// Validate says what is wrong, and what to write instead.
func (a Allow) Validate() error {
	for _, label := range a {
		if key, _, _ := strings.Cut(label, "="); key == "" {
			return fmt.Errorf("--containers.label=%s has no key; write key or key=value", label)
		}
	}
	return nil
}

// Allows reports whether a container with these labels may be acted on.
func (a Allow) Allows(labels map[string]string) bool {
	for _, label := range a {
		key, value, exact := strings.Cut(label, "=")
		if got, ok := labels[key]; ok && (!exact || got == value) {
			return true
		}
	}
	return len(a) == 0
}

// denied reports whether the container is known not to be on the allow-list.
func (k *Core) denied(id string) bool {
	allowed, known := k.allowed[id]
	return known && !allowed
}

// learnLabels asks the engine for the labels of containers that may be on the allow-list.
func (k *Core) learnLabels() {
	if len(k.o.Allow) == 0 {
		return
	}
	present := map[string]bool{}
	for _, c := range k.facts.snap.Containers {
		present[c.ID] = true
		if _, known := k.allowed[c.ID]; !known && c.Spec.Managed {
			k.begin(plan.Action{Kind: Inspect, ContainerID: c.ID, Container: c.Name})
		}
	}
	maps.DeleteFunc(k.allowed, func(id string, _ bool) bool { return !present[id] })
}

// awaitsLabels reports whether nobody's turn has begun on a GPU, and the engine has not told yet whether
// all who compute there are on the allow-list. Their labels come in any order, and whoever were known
// first would have the GPU first. A container whose labels could not be had keeps nobody waiting.
func (k *Core) awaitsLabels(gpu string) bool {
	if len(k.o.Allow) == 0 || len(k.turns.admitted[gpu]) > 0 {
		return false
	}
	return slices.ContainsFunc(k.facts.snap.Tasks, func(t task.Task) bool {
		if !t.State.Unfinished() || !slices.Contains(t.GPUs, gpu) {
			return false
		}
		c, there := k.facts.snap.FindContainer(t.ContainerID)
		_, known := k.allowed[t.ContainerID]
		return there && c.Spec.Managed && !known && k.holds.retry[c.ID].wait == 0
	})
}

// onLabels handles the engine's answer about labels.
func (k *Core) onLabels(r Result) {
	if len(k.o.Allow) == 0 {
		return
	}
	if r.Err != nil {
		k.holds.later(r.ContainerID, k.now)
		return
	}
	k.allowed[r.ContainerID] = k.o.Allow.Allows(r.Status.Labels)
}
