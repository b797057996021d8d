package ladder_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/actuator/policy"
)

func TestEverybodyMayComputeInOrder(t *testing.T) {
	story(t).
		At("0s", Task("b", Deadline("20s")), Task("a", Deadline("10s")), Task("c", Deadline("30s")), Task("d", Deadline("40s"))).
		Expect(Rank("a", "b", "c", "d"), Nobody(Off)).
		Expect(Slice("a", "10s"), Slice("b", "2048us"), Slice("c", "2048us"), Slice("d", "2048us")).
		Expect(Says("a", "first in the queue, slice 10 s"), Says("b", "second in the queue, slice 2.05 ms")).
		At("1s", Gone("a")).
		Expect(Rank("b", "c", "d"), Slice("b", "10s"), Slice("c", "2048us"))
}

// While the first fills the GPU the second has a long slice: what the first leaves at its end is
// for the one that is next. A first one that waits for that has no such second any more: the window
// after the one in which that began tells it from one that has no more kernels.
func TestTheSecondHasWhatALongKernelLeaves(t *testing.T) {
	begun := func() *tale {
		return story(t).
			At("0s", Task("a", Deadline("10s"), Sampled("0s")), Task("b", Deadline("20s"), Sampled("0s")), Task("c", Deadline("30s"), Sampled("0s"))).
			Expect(Slice("b", "2048us"), Slice("c", "2048us")).
			At("1s", Change("a", Sampled("980ms"))).
			Expect(Slice("a", "10s"), Slice("b", "64ms"), Slice("c", "2048us")).
			At("2s", Change("a", Sampled("1400ms")), Change("b", Sampled("560ms"))).
			Expect(Slice("b", "64ms")).
			At("2.5s", Change("b", Sampled("900ms"))).
			Expect(Slice("b", "64ms"))
	}
	begun(). // it waits
			At("3s", Change("a", Sampled("1900ms")), Change("b", Sampled("1060ms"))).
			Expect(Slice("b", "2048us")).
			At("4s", Change("a", Sampled("2890ms"))).
			Expect(Slice("b", "2048us"))
	begun(). // it copies its results
			At("3s", Change("a", Sampled("1400ms")), Change("b", Sampled("1400ms"))).
			Expect(Slice("b", "64ms")).
			At("4s", Change("b", Sampled("2220ms"))).
			Expect(Slice("b", "64ms")).
			At("5s", Change("a", Sampled("2390ms")), Change("b", Sampled("2230ms"))). // and has kernels again
			Expect(Slice("b", "64ms"))
}

// Readings of the context switches tell the same a second earlier. One without a switch says that whoever computes
// has not given the GPU away; how much each used is then told late.
func TestAReadingTellsThatTheFirstFillsTheGPU(t *testing.T) {
	begun := func() *tale {
		return story(t).
			At("0s", Task("a", Deadline("10s"), Used(0)), Task("b", Deadline("20s"), Used(0)), Task("c", Deadline("30s"), Used(0)), Reading("0s", 400)).
			Expect(Slice("b", "2048us")).
			At("1s", Change("a", Used(0.3)), Change("b", Used(0.4)), Reading("0.9s", 40)).
			Expect(Slice("b", "2048us")).
			At("2s", Reading("1s", 0)).
			Expect(Slice("a", "10s"), Slice("b", "64ms"), Slice("c", "2048us")).
			At("3s", Change("a", Used(1)), Change("b", Used(0)), Reading("2s", 0)).
			Expect(Slice("b", "64ms")).
			At("4s", Change("a", Used(0.5)), Change("b", Used(0.4)), Reading("3s", 12)).
			Expect(Slice("b", "64ms")).
			At("4.5s").
			Expect(Slice("b", "64ms"))
	}
	begun(). // it waits
			At("5s", Change("a", Used(0.4)), Change("b", Used(0.5)), Reading("4s", 20)).
			Expect(Slice("b", "2048us")).
			At("6s", Change("a", Used(1)), Change("b", Used(0)), Reading("5s", 0)).
			Expect(Slice("b", "2048us"))
	begun(). // it copies its results
			At("5s", Change("a", Used(0)), Change("b", Used(0.8)), Reading("4s", 100)).
			Expect(Slice("b", "64ms"))
	story(t). // only the next one computes
			At("0s", Task("a", Deadline("10s"), Used(0)), Task("b", Deadline("20s"), Used(1)), Reading("0s", 0)).
			Expect(Slice("b", "2048us"))
}

// A program that waits for each of its kernels gives the GPU away after each. One with a
// deadline gets it back as soon as by default; among batch the second is served well.
func TestOnlyAmongBatchTheSecondHasALongSlice(t *testing.T) {
	story(t).
		At("0s", Task("a", Batch), Task("b", Batch), Task("c", Batch), Task("d", Batch)).
		Expect(Slice("a", "10s"), Slice("b", "100ms"), Slice("c", "10ms"), Slice("d", "2048us")).
		At("1s", Task("urgent", Deadline("10s"))).
		Expect(Rank("urgent", "a", "b", "c", "d"), Nobody(Off), SliceWithin("a", "2048us", "5ms"))
}

func TestWhoIsAloneIsLeftAsByDefault(t *testing.T) {
	s := story(t).At("0s", Task("a", Deadline("10s"))).Expect(Slice("a", "2048us"), Says("a", "alone on the GPU"))
	if !s.plan.Again.IsZero() {
		t.Errorf("it wants to plan again at %v", s.plan.Again)
	}
	story(t).At("0s", Server("s", "20ms")).Expect(Slice("s", "2048us"))
}

func TestAServerNeedsNoKnowledgeOfItsRequests(t *testing.T) {
	story(t).
		At("0s", Server("s", "20ms"), Task("trainer", Batch)).
		Expect(Rank("s", "trainer"), Slice("s", "1s"), Slice("trainer", "100us"), Nobody(Off)).
		Expect(Says("s", "its requests come first, slice 1 s"), Says("trainer", "second in the queue, after the requests of s, slice 100 µs")).
		At("1s", Request("s")).
		Expect(Slice("s", "1s"), Slice("trainer", "100us"), Nobody(Off)).
		At("1.001s", Done("s")).
		Expect(Slice("s", "1s"), Slice("trainer", "100us"), Nobody(Off))
}

func TestBesideAShortDeadlineTrainersTakeTurns(t *testing.T) {
	story(t).
		At("0s", Server("s", "20ms"), Task("a", Batch, Fills), Task("b", Batch, Fills), Task("c", Batch, Fills)).
		Expect(Off("b", "c"), Slice("s", "1s"), Slice("a", "100us")).
		Expect(Says("a", "its turn beside the requests of s"), Says("b", "off the GPU for 800 ms: requests of s come first, and it is the turn of a")).
		Until("0.89s", nil).
		Expect(Off("a", "b"), Slice("c", "100us")).
		At("0.96s", Gone("s")). // nobody's deadline is short any more
		Expect(Nobody(Off), Slice("a", "10s"), Slice("b", "100ms"))
}

// Slices can give what was promised, so nobody is off.
func TestBesideALongDeadlineNobodyIsOff(t *testing.T) {
	story(t).
		At("0s", Server("s", "1s"), Task("a", Batch), Task("b", Batch), Task("c", Batch)).
		Expect(Nobody(Off), Rank("s", "a", "b", "c"), SliceWithin("a", "85ms", "95ms"), Slice("b", "2048us"))
}

// Slices that a request can wait for make no order of two tasks, so they take turns.
func TestBesideADeadlineOfMiddleLengthTheOrderIsKeptByTurns(t *testing.T) {
	red, blue := Task("red", Deadline("9s"), Fills), Task("blue", Deadline("30s"), Fills)
	beside := func(deadline string, others ...event) *tale {
		return story(t).At("0s", append([]event{Server("s", deadline)}, others...)...)
	}
	beside("50ms", red, blue).Expect(Off("blue"), Slice("red", "100us")).
		Expect(Says("blue", "off the GPU for 850 ms: beside requests of s slices are too short to keep the order, and it is the turn of red"))
	beside("50ms", red, Task("b", Batch, Fills)).Expect(Off("b"))
	// Who has no deadline that it can meet is promised no more than its equals.
	beside("50ms", Task("a", Batch, Fills), Task("b", Batch, Fills)).Expect(Nobody(Off), Slice("a", "2152us"), Slice("b", "2048us"))
	// The first is sure of no more than that.
	half := Share(0.5)
	beside("50ms", Task("red", Deadline("9s"), half, Fills), Task("blue", Deadline("30s"), half, Fills)).
		Expect(Nobody(Off), Slice("red", "2100us"), Slice("blue", "2100us"))
	// There is no order between processes of one container.
	beside("50ms", Task("a", In("c"), Deadline("9s"), Fills), Task("b", In("c"), Deadline("9s"), Fills)).Expect(Nobody(Off))
	// Who must stay on has half of each turn: slices give the first more here, and less there.
	stays := Task("stays", Deadline("20s"), Fills, OnTwoGPUs)
	beside("50ms", red, stays).Expect(Nobody(Off), Reports(""))
	beside("150ms", red, blue, stays).Expect(Nobody(Off), SliceWithin("red", "9ms", "10ms"))
	beside("80ms", red, blue, stays).Expect(Off("blue"))
	// Who does not want the GPU takes no part of what slices there are.
	beside("1s", Task("idle", Deadline("5s"), Idle), red, blue).Expect(Nobody(Off), SliceWithin("red", "95ms", "98ms"), Slice("blue", "2048us"))
}

// The first deadline has what a server and the others' least turns leave, whatever the server's deadline is.
func TestTheOrderHoldsBesideAnyServer(t *testing.T) {
	for _, deadline := range []time.Duration{10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms, time.Second} {
		for n := 2; n <= 4; n++ {
			all := []*actor{server("s", deadline, 60*ms, ms)}
			for i := range n {
				a := trainer(fmt.Sprintf("t%d", i), 94*ms, 0)
				a.tenant.Job.Batch, a.tenant.Deadline = false, time.Duration(100+50*i)*time.Second
				all = append(all, a)
			}
			w := newWorld(true, all...)
			w.lags = true
			w.run(30 * time.Second)
			if part := all[1].got.Seconds() / w.now.Seconds(); part < 0.7 || w.err != "" {
				t.Errorf("beside a deadline of %v the first of %d had %.0f %% of the GPU %s", deadline, n, 100*part, w.err)
			}
			for _, a := range all[2:] {
				if part := a.got.Seconds() / w.now.Seconds(); part < 0.02 {
					t.Errorf("beside a deadline of %v one of %d had %.1f %% of the GPU", deadline, n, 100*part)
				}
			}
		}
	}
}

// Jobs that come and go use the gaps of the first, which are known from the last time.
func TestWhoComesAgainUsesTheGaps(t *testing.T) {
	red := trainer("red", 20*ms, 20*ms)
	red.tenant.Job.Batch, red.tenant.Deadline = false, 100*time.Second
	all := []*actor{server("s", 50*ms, 60*ms, ms), red}
	for i := range 6 {
		job := at(trainer(fmt.Sprintf("job%d", i), time.Second, 0), time.Duration(5*i)*time.Second)
		job.endless = false
		all = append(all, job)
	}
	w := newWorld(true, all...)
	w.lags = true
	w.run(35 * time.Second)
	for i, job := range all[3:] {
		if took := job.ended - job.arrive; job.ended == 0 || took > 2500*ms {
			t.Errorf("job %d took %v", i+1, took)
		}
	}
	if part := red.got.Seconds() / w.now.Seconds(); part < 0.4 || w.err != "" {
		t.Errorf("the first had %.0f %% of the GPU %s", 100*part, w.err)
	}
}

// Who leaves gaps in its turn has another one beside it.
func TestGapsAreNotLost(t *testing.T) {
	s := story(t).At("0s", Server("s", "20ms", Got("0s")), Task("a", Batch, Gaps), Task("b", Batch, Gaps)).
		Expect(Off("b")).
		Until("9s", nil)
	s.Expect(Nobody(Off), Slice("a", "2048us"), Slice("b", "2048us"))
}

// Nobody knows whether they leave gaps.
func TestWhoIsNotMeasuredTakesNoTurns(t *testing.T) {
	story(t).At("0s", Server("s", "20ms"), Task("a", Batch), Task("b", Batch)).
		Expect(Nobody(Off), Slice("s", "1s"), SliceWithin("a", "2048us", "8ms"), Slice("b", "2048us"))
}

func TestTheEarlierDeadlineComesFirstAndARequestIsNotBroken(t *testing.T) {
	story(t).
		At("0s", Server("slow", "50ms"), Server("fast", "10ms"), Task("trainer", Batch)).
		Expect(Rank("fast", "slow", "trainer"), Slice("fast", "1s"), Slice("slow", "2500us"), Slice("trainer", "100us"), Nobody(Off)).
		Expect(Says("slow", "after those of fast; the first of them to get the GPU keeps it for its request, this one for 2.5 ms at most"))
}

func TestNobodyIsOffForLong(t *testing.T) {
	s := story(t).At("0s", Server("s", "20ms"))
	for i := range 20 {
		Task(fmt.Sprintf("t%02d", i), Batch, Fills)(s)
	}
	since := map[string]time.Time{}
	s.At("0s").Until("20s", func(s *tale) {
		for id, st := range s.plan.Standings {
			at, off := since[id]
			switch {
			case st.Off && !off:
				since[id] = s.in.Now
			case !st.Off:
				delete(since, id)
			case s.in.Now.Sub(at) > ladder.MaxOff || st.Until.Sub(at) > ladder.MaxOff:
				t.Fatalf("%s is off since %v, at %v", id, at.Sub(epoch), s.in.Now.Sub(epoch))
			}
		}
	})
}

// Taking turns costs two calls each: so many would not be bounded.
func TestTooManyForTurnsAreAllOn(t *testing.T) {
	s := story(t).At("0s", Server("s", "20ms"))
	for i := range 30 {
		Task(fmt.Sprintf("t%02d", i), Batch, Fills)(s)
	}
	s.At("0s").Until("1s", nil).Expect(Nobody(Off), Slice("t07", "2048us"))
}

func TestSharesGiveProportions(t *testing.T) {
	story(t).
		At("0s", Task("a", Share(0.1)), Task("b", Share(0.3)), Task("c", Share(0.6))).
		Expect(Slice("a", "2048us"), Slice("b", "6144us"), Slice("c", "12288us"), Reports("")).
		Expect(Says("c", "sure of 60 %"))
}

// A share is the container's: its processes divide it.
func TestProcessesOfAContainerDivideItsShare(t *testing.T) {
	story(t).
		At("0s", Task("a1", In("a"), Share(0.4)), Task("a2", In("a"), Share(0.4)), Task("b", Share(0.6))).
		Expect(SliceWithin("a1", "3.5ms", "4ms"), SliceWithin("a2", "3.5ms", "4ms"), SliceWithin("b", "11ms", "12ms"), Reports(""))
}

func TestSharesBeyondTheGPUAreReportedAndCut(t *testing.T) {
	story(t).
		At("0s", Task("a", Share(0.9)), Task("b", Share(0.6))).
		Expect(Reports("shares add up to 150 %"), Reports("cut to 67 %")).
		Expect(SliceWithin("a", "11ms", "12ms"), SliceWithin("b", "7ms", "8ms"))
	story(t).
		At("0s", Task("a", Share(0.97), Deadline("10s")), Task("b", Batch)).
		Expect(Reports("shares and the batch floor add up to 102 %"))
}

func TestClassBatchGetsItsFloorFromSlices(t *testing.T) {
	story(t).
		At("0s", Task("urgent", Deadline("10s")), Task("b", Batch)).
		Expect(Rank("urgent", "b"), Nobody(Off), SliceWithin("urgent", "35ms", "40ms"), Slice("b", "2048us")).
		Expect(Says("b", "comes last and gets 5 % all the same (--batch-floor)")).
		At("11s"). // its deadline is over: both get a floor from nobody, in order
		Expect(Rank("urgent", "b"))
}

// A request that lasts takes the whole card: the floor is given in between.
func TestWhatGapsDoNotGiveIsGivenInTurns(t *testing.T) {
	story(t).
		At("0s", Server("s", "20ms"), Task("b", Batch), Request("s")).
		Expect(Slice("s", "1s"), Slice("b", "100us")).
		Until("1s", nil).
		Expect(SliceWithin("s", "35ms", "40ms"), Slice("b", "2048us"), Says("s", "others are sure of 5 % in between")).
		At("1.5s", Done("s")).
		Expect(Slice("s", "1s"), Slice("b", "100us"))
}

// The same where it is measured, however short the requests are.
func TestGapsThatAreTooShortAreNotEnough(t *testing.T) {
	story(t).
		At("0s", Server("s", "20ms", Got("0s")), Task("b", Batch, Got("0s"))).
		Expect(Slice("s", "1s"), Slice("b", "100us")).
		At("1s", Change("s", Got("970ms")), Change("b", Got("10ms"))).
		Expect(SliceWithin("s", "35ms", "40ms"), Slice("b", "2048us")).
		At("2s", Change("s", Got("1900ms")), Change("b", Got("60ms"))). // it takes all that it may
		Expect(SliceWithin("s", "35ms", "40ms"), Slice("b", "2048us")).
		At("3s", Change("s", Got("2500ms")), Change("b", Got("400ms"))).
		Expect(Slice("s", "1s"), Slice("b", "100us"))
}

// Requests that follow each other are one busy interval: that is not yet a server that
// takes the card.
func TestAServerWithManyRequestsKeepsItsPlace(t *testing.T) {
	s := story(t).At("0s", Server("s", "20ms", Got("0s")), Task("b", Batch, Got("0s")), Request("s"))
	for sec := range 5 {
		s.At(fmt.Sprintf("%ds", sec+1), Change("s", Got(fmt.Sprintf("%dms", 30*(sec+1)))), Change("b", Got(fmt.Sprintf("%dms", 960*(sec+1))))).
			Expect(Rank("s", "b"), Slice("s", "1s"), Slice("b", "100us"))
	}
}

func TestAnOverloadedServerLosesItsPlace(t *testing.T) {
	s := story(t).At("0s", Server("s", "20ms", Got("0s")), Task("a", Deadline("30s"), Got("0s")), Request("s"))
	for sec := range 3 {
		s.At(fmt.Sprintf("%ds", sec+1), Change("s", Got(fmt.Sprintf("%dms", 990*(sec+1)))))
	}
	s.Expect(Rank("a", "s"), Says("s", "gets 5 % all the same")).
		At("4s", Done("s")).
		Expect(Rank("s", "a"))
}

// What one that is off leaves goes to others' containers that are greedy: beside those nobody takes turns.
func TestNobodyIsOffBesideGreedyContainers(t *testing.T) {
	for _, greedy := range []bool{false, true} {
		s := story(t)
		s.in.Greedy = greedy
		s.At("0s", Task("u", Unlabelled), Server("s", "20ms"), Task("a", Deadline("10s"), Fills), Task("b", Deadline("20s"), Fills), Task("c", Batch, Fills))
		if greedy {
			s.Expect(Nobody(Off), Slice("s", "2162us"))
		} else {
			s.Expect(Off("b", "c"))
		}
	}
}

func TestOthersPartIsNotOursToTake(t *testing.T) {
	s := story(t).
		At("0s", Task("u", Unlabelled), Server("s", "20ms"), Task("a", Deadline("10s"))).
		Expect(Untouched("u"), Slice("s", "2048us"), SliceWithin("a", "1ms", "2048us"), Nobody(Off)).
		Expect(Says("s", "beside u, which must be left alone, all together have no more than by default"))
	s.At("1s", Change("u", Idle)). // it has a context and does nothing
					Expect(Slice("s", "1s"), Slice("a", "100us"))
	story(t).At("0s", Task("n", Never), Task("a", Deadline("10s")), Task("b", Deadline("20s"))).
		Expect(Untouched("n"), Slice("a", "2048us"), SliceWithin("b", "1ms", "2048us"))
	story(t).At("0s", Task("u", Unlabelled), Task("n", Never), Task("a", Deadline("10s"))).
		Expect(Says("a", "beside n and u, which must")).
		At("1s", Task("v", Unlabelled)).Expect(Says("a", "beside n and 2 more, which must"))
}

func TestWhoIsOnSeveralGPUsIsNeverOff(t *testing.T) {
	story(t).
		At("0s", Server("s", "20ms"), Task("nccl", Batch, OnTwoGPUs), Task("a", Batch, Fills), Task("b", Batch, Fills)).
		Expect(Off("b"), Slice("nccl", "2048us"), Slice("a", "2048us")) // two that are on must not thrash
}

func TestWhoHasWaitedForLongComputesBesideItsEquals(t *testing.T) {
	story(t).
		At("0s", Task("a", Batch), Task("b", Batch)).
		Expect(Slice("a", "10s"), Slice("b", "100ms")).
		Until("29.9s", nil).
		Expect(Slice("b", "100ms")).
		Until("30s", nil).
		Expect(SliceWithin("a", "8ms", "11ms"), SliceWithin("b", "8ms", "11ms"), Says("b", "has waited for as long as sharing would have cost it"))
}

// Who comes to one that goes on and on does not wait for as long again: that one is not known to end.
func TestWhoComesToOneThatGoesOnWaitsAMoment(t *testing.T) {
	joins, waits := Says("b", waitedLong), Slice("b", "100ms")
	for _, tt := range []struct {
		name  string
		order func(time.Time) policy.Order
		first []with        // how long it is expected to take
		comes time.Duration // after the first one
		after time.Duration // b joins
	}{
		{"it has gone on for a minute", edf, nil, time.Minute, 2 * time.Second},
		{"it has just begun", edf, nil, time.Second, 29 * time.Second},
		{"an hour of it is left", edf, []with{known(time.Hour)}, time.Minute, 2 * time.Second},
		{"it ends soon", edf, []with{known(80 * time.Second)}, time.Minute, 30 * time.Second},
		{"in the order of starts", fifo, nil, time.Minute, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := story(t).Order(tt.order).At("0s", Task("a", append([]with{Batch}, tt.first...)...))
			for at := time.Second; at < tt.comes; at += time.Second {
				s.At(at.String())
			}
			s.At(tt.comes.String(), Task("b", Batch)).Expect(Slice("a", "10s"), waits).
				Until((tt.comes+tt.after-100*time.Millisecond).String(), nil).Expect(waits).
				Until((tt.comes + tt.after).String(), nil).Expect(joins)
		})
	}
}

// Sharing with n equals costs a process n times what it needs: for so long it may wait for them, if they are expected
// to end. What is left of its own work does not become less meanwhile, whatever its clock says.
func TestWhoWaitsForEqualsThatEndWaitsLonger(t *testing.T) {
	const length = 40 * time.Second
	joins := Says("b", waitedLong)
	for _, tt := range []struct {
		name  string
		order func(time.Time) policy.Order
		first time.Duration // what the first has left
		until string        // b waits
	}{
		{"as long as the other needs", edf, length, "40s"},
		{"they end within --max-hold, but not in the time that sharing would cost", edf, 55 * time.Second, "40s"},
		{"in the order of starts until --max-hold", fifo, 55 * time.Second, "1m0s"},
		{"nobody waits for an hour's work", edf, time.Hour, "30s"},
		{"nor in the order of starts", fifo, time.Hour, "30s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := story(t).Order(tt.order).Limits(ladder.Limits{MaxHold: time.Minute}).
				At("0s", Task("a", Batch, known(tt.first)), Task("b", Batch, known(length)))
			ends, err := time.ParseDuration(tt.until)
			if err != nil {
				t.Fatal(err)
			}
			for at := time.Second; at < ends; at += time.Second {
				s.At(at.String(), Change("a", known(tt.first-at)), Change("b", known(length-at))).Expect(Slice("a", "10s"), Slice("b", "100ms"))
			}
			s.At(ends.String()).Expect(joins).
				At((ends + time.Second).String(), Change("a", known(time.Second))).Expect(joins) // to its end, whatever is expected now
		})
	}
}

const waitedLong = "has waited for as long as sharing would have cost it"

// known lets a process have this much left.
func known(left time.Duration) with {
	return func(_ *tale, c *ladder.Tenant) { c.Job.Known, c.Job.Remaining, c.Job.Least = true, left, left }
}

// Those that have ended would have shared, too: who waits for the last of them does not lose its patience when they go.
func TestEqualsEndOneAfterAnother(t *testing.T) {
	const each = 10 * time.Second
	story(t).
		At("0s", Task("a", Batch, known(each)), Task("b", Batch, known(each)), Task("c", Batch, known(each))).
		At("10s", Gone("a")).
		Expect(Slice("b", "10s"), Slice("c", "100ms")).
		Until("19.9s", nil).
		Expect(Slice("b", "10s"), Slice("c", "100ms"))
}

// The first run of an image: that what waits is short is learned from the first one's end. By then its clock has
// nearly run out, though it has hardly computed.
func TestALengthThatIsLearnedWhileOneWaits(t *testing.T) {
	story(t).
		At("0s", Task("a", Batch), Task("b", Batch), Task("c", Batch)).
		At("20s", Gone("a"), Change("b", known(time.Second)), Change("c", known(time.Second))).
		Expect(Slice("b", "10s"), Slice("c", "100ms")).
		Until("39.9s", nil).
		Expect(Slice("b", "10s"), Slice("c", "100ms"))
}

// A first one that goes on and on is waited for as long as a stranger, and what the others need does not grow with
// their clocks.
func TestTheFirstTakesLongerThanWasExpected(t *testing.T) {
	s := story(t).At("0s", Task("a", Batch, known(10*time.Second)), Task("b", Batch, known(10*time.Second)), Task("c", Batch, known(10*time.Second)),
		Task("d", Batch, known(10*time.Second)), Task("e", Batch, known(10*time.Second)), Task("f", Batch, known(10*time.Second)))
	plans := 0
	for at := time.Second; at <= 40*time.Second; at += time.Second {
		left := 10*time.Second - at
		if left < 0 {
			left = at / 4 // nobody knows
		}
		s.Until(at.String(), func(*tale) { plans++ }).At(at.String(), Change("b", known(left)), Change("f", known(left))).Expect(Slice("a", "10s"))
	}
	s.At("41s").Expect(Says("b", waitedLong), Says("f", waitedLong))
	if plans > 100 {
		t.Errorf("%d plans in 40s", plans)
	}
}

// Beside a server the first one takes longer than was expected, and is no stranger for that.
func TestTheFirstIsSlowBesideAServer(t *testing.T) {
	s := story(t).At("0s", Server("s", "50ms"), Task("a", Batch, known(time.Minute)), Task("b", Batch, known(time.Minute)), Task("c", Batch, known(time.Minute)))
	first := s.plan.Standings["b"].Reason
	s.Until("119s", nil).At("119.5s")
	if now := s.plan.Standings["b"].Reason; now != first {
		t.Errorf("b: %s; was %s", now, first)
	}
	s.At("121s")
	if now := s.plan.Standings["b"].Reason; now == first {
		t.Errorf("b still waits: %s", now)
	}
}

// Whether those before are expected to end is the same for all of a place, so that the last ones do not go first.
func TestNobodyOvertakesItsEqualsByPatience(t *testing.T) {
	for name, last := range map[string]with{
		"more work than --max-hold": known(100 * time.Second),
		"one of them is a stranger": func(*tale, *ladder.Tenant) {},
	} {
		t.Run(name, func(t *testing.T) {
			story(t).Limits(ladder.Limits{MaxHold: 2 * time.Minute}).
				At("0s", Task("a", Batch, known(100*time.Second)), Task("b", Batch, known(20*time.Second)), Task("c", Batch, known(40*time.Second)), Task("d", Batch, last)).
				Until("29.9s", nil).
				Expect(Slice("a", "10s"), Slice("b", "100ms"), Slice("c", "10ms")).
				Until("30.1s", nil).
				Expect(Says("b", waitedLong), Says("c", waitedLong), Says("d", waitedLong))
		})
	}
}

// Who computes beside its equals does so to its end, also after a moment as the first.
func TestAMomentAsFirstChangesNothing(t *testing.T) {
	labelled := func(yes bool) with { return func(_ *tale, c *ladder.Tenant) { c.Labelled = yes } }
	story(t).
		At("0s", Task("a", Batch, known(10*time.Second)), Task("b", Batch, known(10*time.Second))).
		Until("10s", nil).
		Expect(Says("b", waitedLong)).
		At("11s", Change("a", labelled(false))).
		At("11.1s", Change("a", labelled(true))).
		Expect(Rank("a", "b"), Says("b", waitedLong))
}

func TestAnOrderStandsForAWhile(t *testing.T) {
	story(t).Order(llf).
		At("0s", Task("a", Deadline("10s"), known(5*time.Second)), Task("b", Deadline("10s"), known(4900*time.Millisecond))).
		Expect(Rank("a", "b")).
		At("0.2s", Change("a", known(4800*time.Millisecond))). // b has less laxity now
		Expect(Rank("a", "b")).
		Until("0.25s", nil).
		Expect(Rank("b", "a")).
		At("0.3s", Task("c", Deadline("1s"))). // who comes is put in its place at once
		Expect(Rank("c", "b", "a"))
}

func TestALateTaskGoesBehindAtOnce(t *testing.T) {
	story(t).
		At("0s", Task("a", Deadline("1s")), Task("b", Deadline("10s"))).
		Expect(Rank("a", "b")).
		At("1.1s").
		Expect(Rank("b", "a"), Says("a", "gets 5 % all the same"))
}

func TestOrderOfStarts(t *testing.T) {
	story(t).Order(fifo).
		At("0s", Task("a")).
		At("1s", Task("b", Deadline("1s")), Server("s", "20ms")).
		Expect(Rank("s", "a", "b")) // requests are held for nobody, whatever the order
}

func TestChangesAreBounded(t *testing.T) {
	s := story(t).Limits(ladder.Limits{Calls: 10})
	s.in.Now = epoch
	for i := range 40 {
		Task(fmt.Sprintf("t%02d", i), Deadline(fmt.Sprintf("%ds", 100+i)), Share(0.01+0.0005*float64(i)))(s)
	}
	s.in.Order = s.order(epoch)
	if n := len(ladder.Make(s.in, ladder.State{}).Changes); n > 10 {
		t.Errorf("%d changes at once, want at most 10", n)
	}
	s.At("0s").Until("10s", nil)
	if n := len(s.plan.Changes); n > 0 || s.stood["t00"].Slice < 2*ladder.DefaultSlice {
		t.Errorf("after a while everything stands: %d changes, %v", n, s.stood["t00"])
	}
}

// Whoever is put on comes after whoever is taken off: two with short slices never meet.
func TestChangesAreInOrder(t *testing.T) {
	s := story(t).At("0s", Server("s", "20ms"), Task("a", Batch, Fills), Task("b", Batch, Fills))
	s.in.Now = s.plan.Again
	s.in.Order = s.order(s.in.Now)
	for i, c := range s.in.Tenants {
		s.in.Tenants[i].Stands = s.stood[c.ID]
	}
	var did string
	for _, c := range ladder.Make(s.in, s.state).Changes {
		what := "on"
		if c.Set {
			what = "set"
		} else if c.Standing.Off {
			what = "off"
		}
		did += c.Tenant + " " + what + ", "
	}
	if want := "b set, a off, b on, "; did != want {
		t.Errorf("changes are %q, want %q", did, want)
	}
}

// Who has no channels yet is left as it is, without a call and without counting as one, and
// the others stand as if it were there.
func TestWhoCannotBeChangedYetIsLeftAsItStands(t *testing.T) {
	s := story(t)
	Task("a", Deadline("100s"))(s)
	Task("b", Deadline("200s"))(s)
	s.in.Now, s.in.Order = epoch, s.order(epoch)
	s.in.Tenants[0].Later = true
	p := ladder.Make(s.in, ladder.State{})
	if len(p.Changes) != 1 || p.Changes[0].Tenant != "b" || p.Standings["b"].Slice != 100*ms {
		t.Errorf("changes %+v", p.Changes)
	}
	if a := p.Standings["a"]; a.Rank != 1 || a.Slice != ladder.DefaultSlice || a.Off {
		t.Errorf("%+v", a)
	}
}

// A turn may be late, for want of calls; its time off the GPU is over all the same, and is
// not renewed.
func TestWhoWasOffForASecondIsOnThoughItsTurnIsLate(t *testing.T) {
	s := story(t).Limits(ladder.Limits{Calls: 5})
	s.At("0s", Server("s", "20ms"), Task("a", Batch, Fills), Task("b", Batch, Fills))
	off := "a"
	if !s.stood[off].Off {
		off = "b"
	}
	until, state := s.stood[off].Until, s.state
	s.in.Now = s.plan.Again.Add(-ms)
	s.in.Order = s.order(s.in.Now)
	for i := range s.in.Tenants {
		s.in.Tenants[i].Stands = ladder.Standing{Slice: 5 * ms}
	}
	for range 10 { // calls that fail use the bucket up
		state = ladder.Make(s.in, state).State
	}
	for i, c := range s.in.Tenants {
		s.in.Tenants[i].Stands = s.stood[c.ID]
	}
	s.in.Now = s.plan.Again
	if p := ladder.Make(s.in, state); !p.Standings[off].Off || p.Again.After(until) {
		t.Errorf("a turn that is not late: %+v, again %v", p.Standings[off], p.Again.Sub(epoch))
	}
	s.in.Now = until
	if p := ladder.Make(s.in, state); p.Standings[off].Off {
		t.Errorf("it stands %+v", p.Standings[off])
	}
}

// Who is asked to be off is off without a break, and the others are planned as if it were not there. It is on again as
// soon as nobody asks any more, and stays on where it may not be off at all.
func TestWhoIsAskedToBeOffStaysOff(t *testing.T) {
	renewed := 0
	s := story(t).At("0s", Task("a", Fills), Task("b", Fills, Asked)).Expect(Off("b"), Slice("a", "2048us"), Says("b", "by anna"))
	until := s.stood["b"].Until
	s.Until("10s", func(s *tale) {
		st := s.stood["b"]
		if left := st.Until.Sub(s.in.Now); !st.Off || left <= 0 || left > ladder.MaxOff {
			t.Fatalf("at %v %+v", s.in.Now.Sub(epoch), st)
		}
		if !st.Until.Equal(until) {
			until, renewed = st.Until, renewed+1
		}
	})
	if renewed < 10 || renewed > 25 {
		t.Errorf("renewed %d times in 10 s", renewed)
	}
	s.At("10s", Change("b", func(_ *tale, c *ladder.Tenant) { c.Asked = "" })).Expect(Nobody(Off))
	story(t).At("0s", Task("a", Fills), Task("b", Fills, Asked, OnTwoGPUs), Task("c", Fills, Asked, Unlabelled)).Expect(Nobody(Off), Untouched("c"))
	story(t).At("0s", Server("s", "20ms"), Task("a", Fills), Task("b", Fills, Asked)).Expect(Off("b"))
}
