package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

const (
	// promiseFor is how long a promise counts before its container has started: the engine takes a second at
	// most, but where it has to pull the image.
	promiseFor = 10 * time.Second
	// maxPromises bounds those of clients that never start anything.
	maxPromises = 256
)

// promise is what a container was promised that does not run yet.
type promise struct {
	q         admission.Question
	gpu       string
	at        time.Time
	container string // id of the one that has started since; empty: none yet
}

// promisesKept are the promises of the last seconds, the oldest first. Without them two clients that ask at the same
// moment would both be promised what is there once.
type promisesKept []promise

// keep notes a promise. An asker that asks again about a GPU has one there.
func (p *promisesKept) keep(now time.Time, gpu string, q admission.Question) {
	*p = slices.DeleteFunc(*p, func(old promise) bool { return old.q.Keep == q.Keep && old.gpu == gpu })
	*p = append(*p, promise{q: q, gpu: gpu, at: now})
	*p = (*p)[max(0, len(*p)-maxPromises):]
}

// about lists by GPU whoever is about to start there, but for the asker itself. Whoever has started since is among
// the containers.
func (p *promisesKept) about(now time.Time, started []task.Container, asker string) map[string][]occupant {
	*p = slices.DeleteFunc(*p, func(is promise) bool { return now.Sub(is.at) > promiseFor || now.Before(is.at) })
	p.match(started)
	out := map[string][]occupant{}
	for _, is := range *p {
		if is.container == "" && is.q.Keep != asker {
			out[is.gpu] = append(out[is.gpu], is.occupant())
		}
	}
	return out
}

// match finds the containers that promises were for. A promise is for the first container of its image, deadline and
// share that started after it, and for one alone.
func (p *promisesKept) match(started []task.Container) {
	for _, c := range started {
		if c.PID == 0 || slices.ContainsFunc(*p, func(is promise) bool { return is.container == c.ID }) {
			continue
		}
		i := slices.IndexFunc(*p, func(is promise) bool { return is.container == "" && !c.Started.Before(is.at) && is.meant(c) })
		if i < 0 {
			continue
		}
		keep := (*p)[i].q.Keep
		for j := range *p {
			if (*p)[j].q.Keep == keep { // it may have asked about several GPUs
				(*p)[j].container = c.ID
			}
		}
	}
}

func (is promise) meant(c task.Container) bool {
	deadline := c.Spec.Deadline.Duration()
	if c.Spec.Class == task.ClassBatch {
		deadline = 0
	}
	return c.Image == is.q.Image && deadline == is.q.Deadline && c.Spec.Share == is.q.Share
}

// occupant is the container that will start.
func (is promise) occupant() occupant {
	return occupant{
		c: task.Container{
			ID: fmt.Sprintf("promised to %s on %s", is.q.Keep, is.gpu), Name: "one that is about to start", Image: is.q.Image,
			Spec: task.Spec{Managed: true, Deadline: task.Seconds(is.q.Deadline.Seconds()), Share: is.q.Share},
		},
		p:        plan.Container{Managed: true, Server: is.q.Server},
		estimate: is.q.Estimate,
	}
}
