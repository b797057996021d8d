package actuator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// Allow is a list of Docker labels, key or key=value. A container that carries
// none of them is only observed. An empty list allows every container.
type Allow []string

// Validate says what is wrong and what to write instead.
func (a Allow) Validate() error {
	for _, label := range a {
		if key, _, _ := strings.Cut(label, "="); key == "" {
			return fmt.Errorf("containers.label %q has no key; write key or key=value", label)
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

// managed reports whether the container may be acted on: it has a laxity.* label
// and is on the allow-list. Until the engine has said what labels it carries, it
// is not.
func (l *loop) managed(c task.Container) bool {
	return c.Spec.Managed && (len(l.o.Allow) == 0 || l.allowed[c.ID])
}

// denied reports whether the container is known not to be on the allow-list.
func (l *loop) denied(id string) bool {
	allowed, known := l.allowed[id]
	return known && !allowed
}

// learnLabels asks the engine about containers of which it is not known yet
// whether they are on the allow-list.
func (l *loop) learnLabels(ctx context.Context, now time.Time) {
	if len(l.o.Allow) == 0 {
		return
	}
	present := map[string]bool{}
	for _, c := range l.snap.Containers {
		present[c.ID] = true
		if _, known := l.allowed[c.ID]; !known && c.Spec.Managed {
			l.begin(ctx, now, plan.Action{Kind: look, ContainerID: c.ID, Container: c.Name})
		}
	}
	for id := range l.allowed {
		if !present[id] {
			delete(l.allowed, id)
		}
	}
}

// labelled takes note of the labels that a look brought.
func (l *loop) labelled(id string, s enforce.Status, err error, now time.Time) {
	if len(l.o.Allow) == 0 {
		return
	}
	if err != nil {
		l.later(id, now)
		return
	}
	l.allowed[id] = l.o.Allow.Allows(s.Labels)
}
