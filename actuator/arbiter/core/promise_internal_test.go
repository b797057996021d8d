package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/exporter/task"
)

// A promise is for one container, and a container for one promise, whoever asked about how many GPUs.
func TestPromisesMatchContainers(t *testing.T) {
	var p promisesKept
	q := func(keep string) admission.Question {
		return admission.Question{Image: "i", Deadline: 20 * time.Millisecond, Keep: keep}
	}
	t0 := time.Unix(1000, 0)
	p.keep(t0, "a", q("one"))
	p.keep(t0, "b", q("one"))
	p.keep(t0.Add(100*time.Millisecond), "a", q("two"))
	is := task.Container{ID: "1", Image: "i", PID: 1, Started: t0.Add(time.Second), Spec: task.Spec{Deadline: 0.02}}
	count := func(at time.Duration, started ...task.Container) string {
		on := p.about(t0.Add(at), started, "")
		return fmt.Sprint(len(on["a"]), len(on["b"]))
	}
	if got := count(time.Second); got != "2 1" {
		t.Errorf("before any starts: %s", got)
	}
	early, batch := is, is
	early.ID, early.Started = "0", t0.Add(-time.Second)
	batch.ID, batch.Spec.Class = "2", task.ClassBatch
	if got := count(time.Second, early, batch); got != "2 1" {
		t.Errorf("after one that was there before and one without a deadline that counts: %s", got)
	}
	for range 2 {
		if got := count(time.Second, is); got != "1 0" {
			t.Errorf("after the first one's start: %s", got)
		}
	}
	if got := count(-time.Second); got != "0 0" {
		t.Errorf("after the clock was set back: %s", got)
	}
	for i := range 2 * maxPromises {
		p.keep(t0, "a", q(fmt.Sprint(i)))
	}
	if len(p) != maxPromises {
		t.Errorf("%d promises are kept", len(p))
	}
}
