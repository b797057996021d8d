package core

import (
	"maps"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// admitted holds the verdicts about deadlines, each from when its task or server was first seen.
type admitted struct {
	verdicts map[claimKey]verdict
	// over says, by GPU, that shares and the batch floor add up to more than 1.
	over map[string]string
}

// claimKey identifies a task, or a process of a server, with its deadline: a changed deadline is
// judged anew.
type claimKey struct {
	id, gpu  string
	deadline task.Seconds
}

type verdict struct {
	container string // id
	since     time.Time
	result    admission.Result
	reason    string
}

// judgeDeadlines judges each deadline once, when it is first seen: can it be met beside those that were
// there before? No container is stopped for that.
func (k *Core) judgeDeadlines(in plan.Input) {
	if k.facts.arrived.IsZero() { // nothing new
		return
	}
	a := &k.admitted
	present := map[claimKey]bool{}
	a.over = map[string]string{}
	on := k.occupants(in)
	for _, gpu := range slices.Sorted(maps.Keys(on)) {
		claimants := k.claimants(on[gpu], gpu)
		for i, c := range claimants {
			present[c.key] = true
			if v, judged := a.verdicts[c.key]; !judged || v.result == admission.Unknown && c.known && c.demand.Server { // a task is judged only at its start
				k.judgeDeadline(on[gpu], gpu, claimants[:i], c)
			}
		}
		if over := k.promised(on[gpu], gpu, 0).over; over != "" {
			a.over[gpu] = over
			k.decideOnce("shares/"+gpu, decision.Decision{Kind: decision.Admission, Result: decision.Unmet, Reason: over, GPUs: []string{gpu}})
		}
	}
	maps.DeleteFunc(a.verdicts, func(c claimKey, _ verdict) bool { return !present[c] })
}

func (k *Core) judgeDeadline(on []occupant, gpu string, before []claimant, c claimant) {
	v := verdict{container: c.id, since: c.start, result: admission.Met}
	switch {
	case c.late && (c.demand.Within <= 0 || !k.saw(c.key)):
		k.admitted.verdicts[c.key] = v
		return
	case !c.known:
		v.result = admission.Unknown
	default:
		g := k.gpuOf(on, gpu, before)
		if trouble := g.Admit(c.demand); trouble.Kind != admission.None {
			v.result, v.reason = admission.Unmet, trouble.Words(c.name, g.Beside())
		}
	}
	k.admitted.verdicts[c.key] = v
	k.count(Judged, 1, string(v.result))
	if v.result == admission.Unmet {
		k.decide(decision.Decision{Kind: decision.Admission, Result: decision.Unmet, Reason: unmetWords(v.reason) + "; it runs all the same",
			Container: c.name, ContainerID: c.id, GPUs: []string{gpu}})
	}
}

// saw reports whether the same task or server was judged before, with another deadline.
func (k *Core) saw(key claimKey) bool {
	for other := range k.admitted.verdicts {
		if other.id == key.id && other.gpu == key.gpu {
			return true
		}
	}
	return false
}

func unmetWords(reason string) string { return "its deadline cannot be promised: " + reason }

// admissionState fills in what is known about a container's deadline.
func (k *Core) admissionState(s *state.Container) {
	for _, v := range k.admitted.verdicts {
		switch {
		case v.container != s.ID:
		case v.result == admission.Unmet && (s.DeadlineUnmet == "" || v.reason < s.DeadlineUnmet):
			s.DeadlineUnmet = v.reason
		case v.result == admission.Unknown:
			s.DeadlineUnknown = true
		}
	}
}
