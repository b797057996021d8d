package core

import (
	"fmt"
	"slices"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// asked returns the first open lease of this wish for the target.
func (k *Core) asked(w lease.Wish, target string) (lease.Lease, bool) {
	return k.leases.Find(w, func(t string) bool { return t == target })
}

func (k *Core) wished(w lease.Wish, target string) bool {
	_, ok := k.asked(w, target)
	return ok
}

func (k *Core) arbitrated(gpu string) bool {
	switch k.config.Arbitrate {
	case config.Always:
		return true
	case config.Never:
		return false
	default:
		return k.wished(lease.Arbitrate, gpu)
	}
}

// closeLeases closes leases that have ended, or that are resolved and confirmed to be.
func (k *Core) closeLeases() {
	for _, l := range k.leases.Leases() {
		why := k.closing(l)
		if why == "" {
			continue
		}
		k.leases.Close(l)
		d := decision.Decision{Kind: decision.Lease, Result: decision.Closed, Alert: l.Alert, Fingerprint: l.Fingerprint, By: l.By,
			Cause: string(l.Wish), Reason: why}
		if c, ok := k.facts.snap.FindContainer(l.Target); ok {
			d.Container, d.ContainerID = c.Name, c.ID
		} else if _, ok := k.facts.snap.FindGPU(l.Target); ok {
			d.GPUs = []string{l.Target}
		}
		k.decide(d)
	}
	k.leases.Sweep(k.now)
}

// closing says why a lease closes; empty if it stays open.
func (k *Core) closing(l lease.Lease) string {
	switch {
	case !l.Expires.After(k.now) && l.By != "":
		return "it lasted as long as is allowed (--max-hold)"
	case !l.Expires.After(k.now):
		return "the alert was not seen firing for as long as its lease lasts"
	case l.Wish == lease.Expedite && k.unfinished(l.Target) == 0:
		return "its task has ended"
	case !l.Resolved:
		return ""
	}
	switch l.Wish {
	case lease.Arbitrate:
		n := len(k.facts.snap.TasksOn(l.Target))
		if n > 1 {
			return ""
		}
		return fmt.Sprintf("resolved and confirmed: %d unfinished task on the GPU", n)
	case lease.Relieve:
		g, _ := k.facts.snap.FindGPU(l.Target)
		if m := memoryShare(g); m >= plan.PressureEnds {
			return ""
		}
		return fmt.Sprintf("resolved and confirmed: memory use is below %.0f %%", 100*plan.PressureEnds)
	default:
		return "resolved"
	}
}

// endExemptions ends the exemptions whose tasks are finished.
func (k *Core) endExemptions() {
	for _, e := range k.leases.Exemptions() {
		unfinished := slices.ContainsFunc(k.facts.snap.Tasks, func(t task.Task) bool {
			return slices.Contains(e.Tasks, t.ID)
		})
		if !unfinished && !k.wished(lease.Pause, e.ContainerID) {
			k.leases.Forgive(e.ContainerID)
		}
	}
}

// exempt keeps the container from being held while its present tasks, and these, last.
func (k *Core) exempt(id string, tasks []string, reason string) {
	k.leases.Exempt(lease.Exemption{ContainerID: id, Tasks: k.presentTasks(id, tasks), Reason: reason, Since: k.now})
}

// presentTasks returns the ids of the container's unfinished tasks, and of besides.
func (k *Core) presentTasks(id string, besides []string) []string {
	tasks := slices.Clone(besides)
	if k.facts.snap != nil {
		for _, t := range k.facts.snap.Tasks {
			if t.ContainerID == id && !slices.Contains(tasks, t.ID) {
				tasks = append(tasks, t.ID)
			}
		}
	}
	return tasks
}
