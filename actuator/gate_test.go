package actuator_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/gate"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/exporter/task"
)

// An exporter that cannot read the engine says of whom we have let go meanwhile that it
// is paused. That is nobody else's pause.
func TestWhomWeLetGoRunsThoughTheExporterIsBlind(t *testing.T) {
	var later atomic.Int64
	b := newBench(t, func(o *actuator.Options) {
		o.HoldLease = 100 * time.Millisecond
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	b.run("a", "b")
	b.send(contention("firing"))
	b.awaitPaused("b", "a", "b")
	b.source.set(func() {
		b.source.health.EngineUp = false
		b.source.paused = func(id string) bool { return id == "b" }
	})
	b.decided("its lease ran out", func(d decision.Decision) bool { return d.Kind == decision.Unpause && d.ContainerID == "b" })
	b.awaitPaused("", "a", "b")
	later.Store(int64(time.Hour))
	b.await("an hour is over", func() bool { return b.State().Time.After(time.Now().Add(time.Minute)) })
	for _, c := range b.State().Containers {
		if c.Standing != plan.Runs {
			t.Errorf("%s: %s", c.ID, c.Standing)
		}
	}
}

// fakeGate sees every container on its way to its first launch.
type fakeGate struct{ enforce.Enforcer }

var _ actuator.Gate = fakeGate{}

func (fakeGate) Phases() (map[string]plan.Phase, <-chan struct{}) {
	return map[string]plan.Phase{"urgent": plan.Preparing, "coming": plan.Preparing}, nil
}
func (fakeGate) Cover([]gate.Target)                                {}
func (fakeGate) Line(_, _ map[string][]string, _ map[string]string) {}
func (g fakeGate) ToLaunch(ctx context.Context, id string) error    { return g.Unpause(ctx, id) }
func (fakeGate) Drop(string)                                        {}

// Who is kept from creating its context and has no task yet is not held by any action.
// The state says all the same why it stands.
func TestWhoIsKeptBackHasAReason(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) {
		edf(o)
		pauser := o.NewEnforcer
		o.NewEnforcer = func(j *journal.Journal) (enforce.Enforcer, error) {
			e, err := pauser(j)
			return fakeGate{e}, err
		}
	})
	b.engine.Run("coming")
	b.source.set(func() {
		b.source.boxes = append(b.source.boxes, task.Container{ID: "coming", Name: "name-coming", Spec: task.Spec{Managed: true}})
	})
	b.run("urgent")
	b.source.set(func() {
		u := &b.source.tasks[0]
		u.Start.Time, u.Deadline = time.Now(), time.Now().Add(2500*time.Millisecond) // a tenth of that is too little beside another
	})
	b.await("the reason is told", func() bool {
		return slices.ContainsFunc(b.State().Containers, func(c actuator.ContainerState) bool {
			return c.ID == "coming" && strings.Contains(c.Waits, "lets name-urgent start up first")
		})
	})
}
