package arbiter

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/enforcetest"
	"github.com/laxity/laxity/actuator/plan"
)

// swapper has nothing on record.
type swapper struct{ enforce.Swapper }

func (swapper) Swapped() ([]enforce.Swapped, error) { return nil, nil }

// A swap may take many minutes. At the end containers that are paused do not wait for it; one whose own swap is under
// way does.
func TestTheEndReleasesBeforeASwapEnds(t *testing.T) {
	for _, kind := range []plan.Kind{plan.SwapIn, plan.SwapOut} {
		for name, early := range map[string]bool{"it ends after the release": false, "it ends during the release": true} {
			t.Run(string(kind)+", "+name, func(t *testing.T) {
				unpaused := make(chan string)
				a := newArbiter(t, engine{}, swapper{})
				a.o.Enforcer = engine{journal: a.o.Journal, unpaused: unpaused}
				held := []string{"other", "swapping", "third"}
				for _, id := range held {
					if err := a.o.Journal.Put(enforcetest.HoldOf(id)); err != nil {
						t.Fatal(err)
					}
				}
				swap := core.Action{Action: plan.Action{Kind: kind, ContainerID: "swapping", Container: "swapping"}}
				inspect := core.Action{Action: plan.Action{Kind: core.Inspect, ContainerID: "asked"}}
				a.core.Begin(swap.Action)
				a.core.Begin(inspect.Action)
				ended := make(chan error, 1)
				go func() { ended <- a.releaseAndClose() }()
				next := func() string {
					t.Helper()
					select {
					case id := <-unpaused:
						return id
					case err := <-ended:
						t.Fatalf("it ended: %v", err)
					case <-time.After(10 * time.Second):
						t.Fatal("nobody is released")
					}
					return ""
				}
				a.finished <- core.Result{Action: inspect, Err: context.DeadlineExceeded}
				got := []string{next()}
				if early {
					a.finished <- core.Result{Action: swap, Err: enforce.ErrNoRoom}
				}
				got = append(got, next())
				slices.Sort(got)
				if !slices.Equal(got, []string{"other", "third"}) {
					t.Fatalf("released while a swap is under way: %q", got)
				}
				if !early {
					select {
					case id := <-unpaused:
						t.Fatalf("%s is released, and its swap is under way", id)
					case err := <-ended:
						t.Fatalf("it does not wait for the swap: %v", err)
					default:
					}
					a.finished <- core.Result{Action: swap, Err: enforce.ErrNoRoom}
				}
				if id := next(); id != "swapping" {
					t.Errorf("%s is released again", id)
				}
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
				case id := <-unpaused:
					t.Errorf("%s is released once more", id)
				case <-time.After(10 * time.Second):
					t.Error("it does not end")
				}
			})
		}
	}
}

// reluctant fails its first calls.
type reluctant struct {
	engine
	fails atomic.Int32
}

func (e *reluctant) Unpause(_ context.Context, id string) error {
	if e.fails.Add(-1) >= 0 {
		return enforce.ErrUnavailable
	}
	return e.journal.Remove(id)
}

// An engine that fails for a moment, as while it restarts, leaves nobody paused.
func TestTheEndTriesAgain(t *testing.T) {
	a := newArbiter(t, engine{}, nil)
	e := &reluctant{engine: engine{journal: a.o.Journal}}
	e.fails.Store(2)
	a.o.Enforcer = e
	if err := a.o.Journal.Put(enforcetest.HoldOf("a")); err != nil {
		t.Fatal(err)
	}
	if err := a.releaseAndClose(); err != nil {
		t.Error(err)
	}
	if holds, err := a.o.Journal.List(); err != nil || len(holds) > 0 {
		t.Errorf("on record: %+v, %v", holds, err)
	}
}
