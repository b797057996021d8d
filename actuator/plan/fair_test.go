package plan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/laxity/laxity/actuator/policy"
)

// property is something that must hold in a world all the time.
type property struct {
	name string
	// holds looks at the world after a step, and says what is wrong.
	holds func(step float64) string
}

// properties that no draw may break.
func properties(w *world) []property {
	return []property{
		{"whoever has a deadline, on time or late, waits behind batch for no longer than it takes to stop that", behindBatch(w)},
		{"a request waits for nobody, late or not", requestsWait(w)},
		{"batch gets its floor", floorOfBatch(w)},
		{"nobody starves", starves(w)},
	}
}

// Ten thousand draws of tasks, servers and batch: each property holds in all of them.
func TestNobodyIsForgotten(t *testing.T) {
	const parts = 4
	draws := 10_000
	if testing.Short() {
		draws = 500
	}
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := part; i < draws; i += parts {
				checkDraw(t, i)
			}
		})
	}
}

func checkDraw(t *testing.T, number int) {
	w := drawWorld(rand.New(rand.NewPCG(1, uint64(number)))) //nolint:gosec // not a secret
	all := properties(w)
	w.watch = func(step float64) {
		for _, p := range all {
			if what := p.holds(step); what != "" {
				t.Fatalf("%s: draw %d, at %.2f s, %T, llf %v, floor %v: %s", p.name, number, w.now, w.rule, w.llf, w.floor.Share, what)
			}
		}
	}
	w.run(3)
}

func behindBatch(w *world) func(float64) string {
	return func(float64) string {
		for _, v := range w.tenants {
			if v.behind > preempting+1e-6 {
				return fmt.Sprintf("%+v waits behind batch for %.3f s", *v, v.behind)
			}
		}
		return ""
	}
}

func requestsWait(w *world) func(float64) string {
	return func(float64) string {
		for _, v := range w.tenants {
			if v.server && v.held > preempting+1e-6 {
				return fmt.Sprintf("a request is held for %.3f s", v.held)
			}
		}
		return ""
	}
}

// floorOfBatch: while batch wants the GPU it gets its floor in every stretch of time,
// or what it would get without us where that is less, but for what is given in one
// piece.
func floorOfBatch(w *world) func(float64) string {
	missing, before := 0.0, 0.0
	return func(step float64) string {
		got, others, wants := 0.0, 0.0, false
		for _, v := range w.tenants {
			switch {
			case v.batch:
				got, wants = got+v.got, wants || v.here
			case v.computes():
				others++
			}
		}
		missing = max(0, missing+min(w.floor.Share, 1/(1+others))*step-(got-before))
		if before = got; !wants {
			missing = 0
		}
		if missing > 0.75 {
			return fmt.Sprintf("it lacks %.3f s", missing)
		}
		return ""
	}
}

// starves: every task ends that ever can, within what the floor needs for all the work
// there is, the longest deadline, and the patience of those that wait.
func starves(w *world) func(float64) string {
	work, deadline := 0.0, 0.0
	for _, v := range w.tenants {
		if !v.server && !math.IsInf(v.work, 1) {
			work += v.work
		}
		deadline = max(deadline, v.deadline)
	}
	bound := 5 + deadline + policy.DefaultPatience.Seconds() + 1.5*work/w.floor.Share
	return func(float64) string {
		for _, v := range w.tenants {
			if v.here && !v.server && !math.IsInf(v.work, 1) && w.now > bound {
				return fmt.Sprintf("%+v has not ended by %.1f s", *v, bound)
			}
		}
		return ""
	}
}
