package compute

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Unix(1_000_000, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

// drain runs the unit until it is idle and returns when that was.
func drain(u *Unit) time.Time {
	for {
		next, ok := u.Next()
		if !ok {
			return u.now
		}
		u.Advance(next)
	}
}

func near(t *testing.T, what string, got, want, tolerance time.Duration) {
	t.Helper()
	if (got - want).Abs() > tolerance {
		t.Errorf("%s = %v, want %v ± %v", what, got, want, tolerance)
	}
}

func TestKernels(t *testing.T) {
	const slice, cost = 2 * time.Millisecond, 300 * time.Microsecond
	// Two of a second take 499 and 500 turns before the last one of the first.
	const both = 2*time.Second + 999*cost
	tests := []struct {
		name   string
		begin  []time.Duration // one owner each
		length []time.Duration
		want   []time.Duration
	}{
		{"alone pays nothing", []time.Duration{0}, []time.Duration{time.Second}, []time.Duration{time.Second}},
		{"two share and pay", []time.Duration{0, 0}, []time.Duration{time.Second, time.Second},
			[]time.Duration{both - slice - cost, both - cost}},
		{"a short one leaves the rest to the other", []time.Duration{0, 0}, []time.Duration{time.Second, 3 * time.Second},
			[]time.Duration{both - slice - cost, both - cost + 2*time.Second}},
		{"one after another", []time.Duration{0, time.Second}, []time.Duration{time.Second, time.Second},
			[]time.Duration{time.Second, 2 * time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := NewUnit(slice, cost)
			var ops []*Op
			for i := range tt.begin {
				ops = append(ops, u.Launch(at(tt.begin[i]), Owner(i), tt.length[i]))
			}
			drain(u)
			for i, op := range ops {
				near(t, "end", op.Ended().Sub(epoch), tt.want[i], time.Microsecond)
			}
		})
	}
}

func TestOneOwnerRunsInOrder(t *testing.T) {
	u := NewUnit(time.Millisecond, time.Millisecond)
	first := u.Launch(epoch, 1, time.Second)
	second := u.Launch(epoch, 1, time.Second)
	drain(u)
	near(t, "first", first.Ended().Sub(epoch), time.Second, time.Microsecond)
	near(t, "second", second.Ended().Sub(epoch), 2*time.Second, time.Microsecond)
}

func TestCopiesRunBesideEverything(t *testing.T) {
	u := NewUnit(0, 0)
	ops := []*Op{u.Launch(epoch, 1, time.Second), u.Copy(epoch, 1, time.Second), u.Copy(epoch, 2, time.Second)}
	drain(u)
	for i, op := range ops {
		near(t, "op", op.Ended().Sub(epoch), time.Second, time.Microsecond)
		if op.Dropped() {
			t.Errorf("op %d was dropped", i)
		}
	}
}

func TestDropKeepsTheKernelInFlight(t *testing.T) {
	u := NewUnit(0, 0)
	flying := u.Launch(epoch, 1, time.Second)
	queued := u.Launch(epoch, 1, time.Second)
	moving := u.Copy(epoch, 1, time.Second)
	u.Drop(at(100*time.Millisecond), 1)
	if !queued.Dropped() || !moving.Dropped() {
		t.Error("queued kernel and transfer must be dropped")
	}
	if !u.Busy(1) {
		t.Error("the kernel in flight must stay")
	}
	drain(u)
	if flying.Dropped() || u.Busy(1) {
		t.Error("the kernel in flight must run to its end")
	}
	near(t, "end", flying.Ended().Sub(epoch), time.Second, time.Microsecond)
}

func TestReadingLags(t *testing.T) {
	lag := Utilization{Period: 200 * time.Millisecond, Rise: 300 * time.Millisecond, Fall: 770 * time.Millisecond}
	u := NewUnit(0, 0)
	u.Launch(epoch, 1, time.Second)
	for _, tt := range []struct {
		after time.Duration
		want  float64
	}{
		{100 * time.Millisecond, 0},
		{200 * time.Millisecond, 0.5},
		{300 * time.Millisecond, 1},
		{1000 * time.Millisecond, 1},
		{1200 * time.Millisecond, 0.5},
		{1400 * time.Millisecond, floor},
		{1769 * time.Millisecond, floor},
		{1771 * time.Millisecond, 0},
	} {
		u.Advance(at(tt.after))
		if got := u.Utilization(lag); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("after %v: %v, want %v", tt.after, got, tt.want)
		}
		if got := u.OwnerUtilization(1, lag); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("owner after %v: %v, want %v", tt.after, got, tt.want)
		}
	}
}

// Whatever arrives when: all of it ends, nobody is faster than alone, the unit
// never works less than the switching cost allows, and advancing in many small
// steps ends everything at the same time as in one.
func TestWorkIsConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type job struct {
			owner Owner
			begin time.Duration
			alone time.Duration
		}
		var jobs []job
		begin := time.Duration(0)
		for range rapid.IntRange(1, 20).Draw(t, "jobs") {
			begin += time.Duration(rapid.Int64Range(0, 1e8).Draw(t, "gap"))
			jobs = append(jobs, job{
				Owner(rapid.IntRange(0, 5).Draw(t, "owner")), begin,
				time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "alone")),
			})
		}
		step := time.Duration(rapid.Int64Range(1e6, 5e8).Draw(t, "step"))
		play := func(fine bool) ([]*Op, time.Time) {
			u := NewUnit(2*time.Millisecond, 400*time.Microsecond)
			var ops []*Op
			for _, j := range jobs {
				if fine {
					for next := u.now.Add(step); u.now.After(epoch) && next.Before(at(j.begin)); next = next.Add(step) {
						u.Advance(next)
					}
				}
				ops = append(ops, u.Launch(at(j.begin), j.owner, j.alone))
			}
			return ops, drain(u)
		}
		ops, end := play(false)
		again, _ := play(true)
		var sum time.Duration
		for i, op := range ops {
			select {
			case <-op.Done():
			default:
				t.Fatalf("op %d never ended", i)
			}
			took := op.Ended().Sub(at(jobs[i].begin))
			if took < jobs[i].alone-time.Microsecond {
				t.Fatalf("op %d took %v, alone %v", i, took, jobs[i].alone)
			}
			if diff := op.Ended().Sub(again[i].Ended()).Abs(); diff > 10*time.Microsecond {
				t.Fatalf("op %d ends %v apart in fine steps", i, diff)
			}
			sum += jobs[i].alone
		}
		latest := jobs[len(jobs)-1].begin + time.Duration(float64(sum)*1.2) + time.Duration(len(jobs))*400*time.Microsecond
		if end.Sub(epoch) > latest {
			t.Fatalf("all ended at %v, want at most %v", end.Sub(epoch), latest)
		}
	})
}
