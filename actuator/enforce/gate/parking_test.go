package gate

import (
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/plan"
)

// waiting is an enforcer with one container, which has waited at the gate for a while
// and has the last place of a line, and the engine that it runs on.
func waiting(t *testing.T) (*Enforcer, *Gate, *enforcetest.Engine, *journal.Journal) {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	engine := enforcetest.NewEngine()
	engine.Run("a")
	pauser, err := docker.New(docker.Options{Engine: engine, Freezer: engine, Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEnforcer(EnforcerOptions{Pauser: pauser, Journal: j})
	c := &container{id: "a", looked: true, processes: map[int]*process{}}
	// One that is asked to end needs no kernel to be shut.
	c.processes[1] = &process{pid: 1, of: c, phase: plan.Waiting, since: time.Now().Add(-e.o.Moment), leaving: true}
	e.gate = &Gate{o: Options{Now: time.Now}, containers: map[string]*container{"a": c}}
	e.Line(nil, map[string][]string{"gpu": {"x", "y", "a"}}, nil)
	return e, e.gate, engine, j
}

// Who waits at the gate and is not held by the planner is not paused: the planner would
// take that pause for somebody else's, and nobody would end it.
func TestNobodyIsParkedThatIsNotHeld(t *testing.T) {
	e, g, engine, j := waiting(t)
	var parking sync.WaitGroup
	e.look(t.Context(), g, &parking)
	parking.Wait()
	_, recorded, err := j.Get("a")
	if paused, frozen := engine.Paused("a"); paused || frozen || recorded || err != nil {
		t.Errorf("paused %v, frozen %v, on record %v, %v", paused, frozen, recorded, err)
	}
}

func TestWhoIsHeldIsParked(t *testing.T) {
	e, g, engine, j := waiting(t)
	now := time.Now()
	hold := journal.Hold{ContainerID: "a", Container: "name", Cause: string(plan.Arbitrate), Reason: "waits for x", Since: now, Expires: now.Add(time.Hour), Until: now.Add(time.Hour)}
	if err := e.Pause(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	var parking sync.WaitGroup
	e.look(t.Context(), g, &parking)
	parking.Wait()
	_, recorded, err := j.Get("a")
	if paused, _ := engine.Paused("a"); !paused || !recorded || err != nil {
		t.Errorf("paused %v, on record %v, %v", paused, recorded, err)
	}
}

// A hold that ends while somebody is about to park the container is not followed by a
// pause.
func TestHoldEndsBeforeTheParking(t *testing.T) {
	e, _, engine, j := waiting(t)
	e.hold("a", true)
	e.Drop("a")
	e.park(t.Context(), "a", time.Now())
	_, recorded, err := j.Get("a")
	if paused, _ := engine.Paused("a"); paused || recorded || err != nil {
		t.Errorf("paused %v, on record %v, %v", paused, recorded, err)
	}
}
