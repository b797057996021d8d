package core_test

import (
	"strings"
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/exporter/task"
)

// Members whose labels disagree say so, each of them, until they agree or the other one is gone.
func TestGangThatDisagrees(t *testing.T) {
	w := newWorld(t)
	of := func(gang, deadline string) map[string]string {
		return map[string]string{task.LabelGang: gang, task.LabelDeadline: deadline}
	}
	// told says which of the containers have the label laxity.gang among their invalid ones.
	told := func() string {
		var names []string
		for _, c := range w.snapshot().Containers {
			for _, bad := range c.Invalid {
				if bad.Label == task.LabelGang && strings.Contains(bad.Hint, "laxity.deadline counts as") {
					names = append(names, c.Name)
				}
			}
		}
		return strings.Join(names, " ")
	}
	w.run(0, "a", of("job", "9s"))
	w.run(1, "b", of("job", "9s"))
	w.run(2, "c", of("other", "5s"))
	sameText(t, "told while they agree", told(), "")
	w.run(3, "d", of("job", "5s"))
	sameText(t, "told after a third one came", told(), "a b d")
	var logged []string
	for _, f := range w.facts {
		if len(f.Container.Invalid) > 0 {
			logged = append(logged, f.Container.Name)
		}
	}
	sameText(t, "logged of", strings.Join(logged, " "), "d")
	w.m.Change(id("d"), due(9), at(4))
	sameText(t, "told after its deadline was changed", told(), "")
	w.m.Change(id("a"), due(7), at(5))
	sameText(t, "told after the deadline of another one was changed", told(), "a b d")
	w.event(6, container.Died, "a")
	sameText(t, "told after that one ended", told(), "")
}

func sameText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
