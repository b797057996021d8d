package ladder_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
)

// Eight large tasks that want the GPU at once end in their order and, on average, in
// little more than half of the time that they take by default; all of them no later.
func TestEightLargeTasksEndInOrder(t *testing.T) {
	run := func(planned bool) *world {
		w := newWorld(planned, many(8, large)...)
		w.run(60 * time.Second)
		return w
	}
	with, without := run(true), run(false)
	last, mean := with.ends()
	lastBefore, meanBefore := without.ends()
	if r := last.Seconds() / lastBefore.Seconds(); r > 0.9 {
		t.Errorf("the last ends after %.2f of the default, want at most 0.9", r)
	}
	if r := mean.Seconds() / meanBefore.Seconds(); r > 0.56 {
		t.Errorf("they end after %.2f of the default on average, want at most 0.56", r)
	}
	for i, a := range with.actors[1:] {
		if a.ended < with.actors[i].ended {
			t.Errorf("%s ends before %s", a.tenant.ID, with.actors[i].tenant.ID)
		}
	}
	if with.err != "" {
		t.Error(with.err)
	}
}

// Who comes in whatever order is served in that of the deadlines.
func TestOrderOfDeadlinesWhateverTheOrderOfStarts(t *testing.T) {
	for number := range 200 {
		r := rand.New(rand.NewPCG(3, uint64(number))) //nolint:gosec // not a secret
		var all []*actor
		for i := range 2 + r.IntN(4) {
			a := labelled(fmt.Sprintf("t%d", i))
			a.tenant.Deadline = time.Minute + time.Duration(i)*time.Second
			a.phases = []phase{{true, uniform(r, 500*ms, 3*time.Second)}}
			all = append(all, a)
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		w := newWorld(true, all...)
		w.run(40 * time.Second)
		for _, a := range all {
			for _, b := range all {
				if a.tenant.Deadline < b.tenant.Deadline && a.ended > b.ended && a.phases[0].d > 100*ms && b.phases[0].d > 600*ms {
					t.Fatalf("draw %d: %s ends at %v, after %s at %v", number, a.tenant.ID, a.ended, b.tenant.ID, b.ended)
				}
			}
		}
	}
}

// The shares of the bars: each within three points of what all of them got.
func TestSharesAreKeptAndLent(t *testing.T) {
	shares := []float64{0.1, 0.3, 0.6}
	for lender := -1; lender < len(shares); lender++ {
		all := trainers(3)
		rest := 1.0
		for i := range all {
			share(all[i], shares[i])
			if i == lender { // it has a task, and does nothing
				all[i].phases = []phase{{false, time.Hour}}
				rest -= shares[i]
			}
		}
		w := newWorld(true, all...)
		w.run(10 * time.Second)
		for i, a := range all {
			want := shares[i] / rest
			if i == lender {
				want = 0
			}
			if got := a.got.Seconds() / w.useful().Seconds(); got < want-0.03 || got > want+0.03 {
				t.Errorf("%d lends: %s has %.1f %%, want %.0f %%", lender, a.tenant.ID, 100*got, 100*want)
			}
		}
		if lost := 1 - w.useful().Seconds()/w.now.Seconds(); lost > 0.1 {
			t.Errorf("%d lends: switches take %.1f %%", lender, 100*lost)
		}
	}
}

// Endless ones without a deadline wait for their equals only for so long.
func TestNobodyStarvesAmongEquals(t *testing.T) {
	w := newWorld(true, trainers(3)...)
	for id, part := range w.parts(40*time.Second, 42*time.Second) {
		if part < 0.25 {
			t.Errorf("%s has %.0f %% of the GPU, want a third", id, 100*part)
		}
	}
}

// An overloaded server takes the card for no longer than --late and a window.
func TestAnOverloadedServerDoesNotTakeTheCardForEver(t *testing.T) {
	for _, measured := range []bool{true, false} {
		task := trainer("task", 50*ms, 0)
		task.tenant.Job.Batch, task.tenant.Deadline = false, time.Minute
		w := newWorld(true, server("server", 20*ms, 10*ms, 12*ms), task)
		w.measured = measured
		w.run(5 * time.Second)
		before := task.got
		w.run(15 * time.Second)
		if part := (task.got - before).Seconds() / 10; part < 0.35 {
			t.Errorf("measured %v: the task has %.0f %% of the GPU", measured, 100*part)
		}
	}
}

// Two servers and a trainer: the earlier deadline waits for the other's request at most.
func TestTwoServersAndATrainer(t *testing.T) {
	fast, slow := server("fast", 10*ms, 30*ms, 870*time.Microsecond), server("slow", 50*ms, 37*ms, 870*time.Microsecond)
	w := newWorld(true, fast, slow, trainer("trainer", 94*ms, 0))
	w.run(20 * time.Second)
	wait := func(a *actor, q float64) time.Duration { return quantile(a.takes, q) }
	if d := wait(fast, 0.99); d > 870*time.Microsecond*2+3*ladder.SwitchCost {
		t.Errorf("p99 of the fast one is %v", d)
	}
	if d := wait(slow, 0.99); d > 870*time.Microsecond*2+4*ladder.SwitchCost {
		t.Errorf("p99 of the slow one is %v", d)
	}
	t.Logf("fast p50 %v, p99 %v; slow p50 %v, p99 %v; trainer %.2f", wait(fast, 0.5), wait(fast, 0.99), wait(slow, 0.5), wait(slow, 0.99), w.actors[2].got.Seconds()/20)
}
