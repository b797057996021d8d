package compute

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// busy launches a kernel that outlasts every test.
func busy(u *Unit, owner Owner, slice time.Duration) *Op {
	u.SetSlice(epoch, owner, slice)
	return u.Launch(epoch, owner, time.Hour)
}

func TestSlicesDivideTheTime(t *testing.T) {
	const cost = 300 * us
	for _, tt := range []struct {
		name   string
		slices []time.Duration
		want   []float64 // share of the time in which each computes
	}{
		{"1, 3 and 6 ms: 10, 29 and 57 % as measured, less the switches", []time.Duration{1 * ms, 3 * ms, 6 * ms}, []float64{0.092, 0.275, 0.550}},
		{"equal ones of 1 µs thrash", []time.Duration{us, us, us}, []float64{0.0011, 0.0011, 0.0011}},
		{"500 µs beside a second", []time.Duration{time.Second, 500 * us}, []float64{0.9989, 0.0005}},
		{"a ladder", []time.Duration{10 * time.Second, 100 * ms}, []float64{0.99, 0.0099}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := NewUnit(0, cost)
			var ops []*Op
			var round time.Duration
			for i, s := range tt.slices {
				ops = append(ops, busy(u, Owner(i), s))
				round += s + cost
			}
			rounds := max(int(time.Minute/round), 1)
			u.Advance(at(time.Duration(rounds) * round))
			for i, op := range ops {
				got := float64(time.Hour-op.left) / float64(time.Duration(rounds)*round)
				if math.Abs(got-tt.want[i]) > 0.01*tt.want[i]+1e-4 {
					t.Errorf("%v has %.4f of the time, want %.4f", tt.slices[i], got, tt.want[i])
				}
			}
		})
	}
}

// A short request waits for the slice that runs, and for those before it in the ring.
func TestRequestWaitsForTheSliceThatRuns(t *testing.T) {
	for _, tt := range []struct {
		name     string
		trainers int
		slice    time.Duration
		want     time.Duration // of the 1-ms request, from 0.1 ms into a slice
	}{
		{"alone", 0, ms, ms},
		{"one of 1 µs", 1, us, ms + us + 300*us - us},
		{"one of 2 ms", 1, 2 * ms, ms + 1900*us + 300*us},
		{"four of 500 µs", 4, 500 * us, ms + 400*us + 4*300*us + 3*500*us},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := NewUnit(0, 300*us)
			for i := range tt.trainers {
				busy(u, Owner(i), tt.slice)
			}
			u.SetSlice(epoch, 9, time.Second)
			begin := epoch.Add(100 * us)
			op := u.Launch(begin, 9, ms)
			for !op.isDone() {
				next, _ := u.Next()
				u.Advance(next)
			}
			near(t, "request", op.Ended().Sub(begin), tt.want, us)
		})
	}
}

func (o *Op) isDone() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

func TestSliceChangesAtOnce(t *testing.T) {
	u := NewUnit(0, 300*us)
	first, second := busy(u, 1, time.Second), busy(u, 2, us)
	u.Advance(at(100 * ms))
	u.SetSlice(at(100*ms), 2, time.Second)
	u.SetSlice(at(100*ms), 1, us)
	u.Advance(at(200 * ms))
	near(t, "the first", time.Hour-first.left, 100*ms, us)
	near(t, "the second", time.Hour-second.left, 99_700*us, us)
}

func TestOffStopsTheRunningKernel(t *testing.T) {
	u := NewUnit(0, 300*us)
	held := u.Launch(epoch, 1, 100*ms)
	other := u.Launch(at(40*ms), 2, 50*ms)
	u.Switch(at(40*ms), 1, false)
	u.Switch(at(40*ms), 1, false) // once is enough
	u.Advance(at(90*ms + 300*us))
	if !other.isDone() || held.isDone() {
		t.Fatal("the other has the unit without a gap")
	}
	if _, ok := u.Next(); ok {
		t.Error("nothing ends while the only one is off")
	}
	u.Advance(at(time.Second))
	near(t, "left", held.left, 60*ms, 0)
	u.Switch(at(time.Second), 1, true)
	drain(u)
	near(t, "it goes on where it stood", held.Ended().Sub(epoch), time.Second+60*ms, us)
}

func TestDropOfOneThatIsOff(t *testing.T) {
	u := NewUnit(0, 0)
	op := u.Launch(epoch, 1, time.Second)
	u.Switch(epoch, 1, false)
	u.Drop(at(ms), 1)
	if u.Busy(1) || !op.Dropped() {
		t.Error("its kernel must not outlive it")
	}
	u.Forget(1)
	if u.Off(1) {
		t.Error("it is remembered")
	}
}

// Next is exact: nothing ends before it, and something ends at it, whatever the
// slices, and whoever is off.
func TestNextIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := NewUnit(0, 300*us)
		var ops []*Op
		for i := range rapid.IntRange(1, 5).Draw(t, "owners") {
			u.SetSlice(epoch, Owner(i), time.Duration(rapid.SampledFrom([]int64{1e5, 5e5, 2e6, 1e8, 1e10}).Draw(t, "slice")))
			ops = append(ops, u.Launch(epoch, Owner(i), time.Duration(rapid.Int64Range(1, 1e8).Draw(t, "alone"))))
			u.Switch(epoch, Owner(i), rapid.IntRange(0, 3).Draw(t, "on") > 0)
		}
		for next, ok := u.Next(); ok; next, ok = u.Next() {
			ended := 0
			for _, op := range ops {
				if op.isDone() {
					ended++
				}
			}
			u.Advance(next.Add(-1))
			for _, op := range ops {
				if op.isDone() {
					ended--
				}
			}
			if ended != 0 {
				t.Fatalf("something ended before %v", next.Sub(epoch))
			}
			u.Advance(next)
			for _, op := range ops {
				if op.isDone() && op.Ended().Equal(next) {
					ended++
				}
			}
			if ended == 0 {
				t.Fatalf("nothing ended at %v", next.Sub(epoch))
			}
		}
	})
}

// The switches of a card that thrashes are not worth a timer each.
func TestThrashingWakesNobody(t *testing.T) {
	u := NewUnit(us, 300*us)
	u.Launch(epoch, 1, 10*ms)
	u.Launch(epoch, 2, 10*ms)
	wakes := 0
	for next, ok := u.Next(); ok; next, ok = u.Next() {
		wakes++
		u.Advance(next)
	}
	if wakes != 2 {
		t.Errorf("%d events for two ends", wakes)
	}
}
