package core

import (
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/exporter/task"
)

// Off is a lease that ends by itself: from then on it counts as on, and can be taken off again.
func TestWhoseLeaseHasEndedIsOn(t *testing.T) {
	now, c, u := time.Now(), task.Container{ID: "c"}, user{pid: 5, gpus: []string{"GPU-0"}}
	k := &Core{now: now, division: newDivision()}
	k.facts.starts = map[int]uint64{5: 7}
	is := k.known(c, u)
	is.stands = ladder.Standing{Slice: time.Millisecond, Off: true, Until: now.Add(time.Second)}
	k.now = now.Add(999 * time.Millisecond)
	if s := k.known(c, u).stands; !s.Off {
		t.Error("on before its lease has ended")
	}
	k.now = now.Add(time.Second)
	if s := k.known(c, u).stands; s.Off || s.Slice != time.Millisecond {
		t.Errorf("%+v", s)
	}
}

// What waits for a call under way is not waited for: the call's end wakes the loop.
func TestPlansAreMadeAgain(t *testing.T) {
	now := time.Now()
	past, soon, later := now.Add(-time.Hour), now.Add(time.Millisecond), now.Add(time.Second)
	sliced := ladder.Standing{Slice: time.Millisecond}
	for name, tt := range map[string]struct {
		gpu  divided
		is   tenant
		want time.Time
	}{
		"nothing":                             {divided{}, tenant{}, time.Time{}},
		"as the plan asked":                   {divided{plan: ladder.Plan{Again: soon}}, tenant{}, soon},
		"overdue":                             {divided{plan: ladder.Plan{Again: past}}, tenant{}, past},
		"overdue, while it is busy":           {divided{plan: ladder.Plan{Again: past}, calls: []call{{}}}, tenant{}, time.Time{}},
		"another try":                         {divided{plan: ladder.Plan{Again: later}}, tenant{retry: backoff{next: soon}}, soon},
		"a try that is due was made":          {divided{}, tenant{retry: backoff{next: past}}, time.Time{}},
		"an inspection":                       {divided{plan: ladder.Plan{Again: later}}, tenant{stands: sliced, inspect: backoff{next: soon}}, soon},
		"no inspection of one that is as own": {divided{}, tenant{inspect: backoff{next: soon}}, time.Time{}},
	} {
		v := newDivision()
		tt.is.gpu = "GPU-0"
		v.gpus["GPU-0"], v.tenants["5"] = &tt.gpu, &tt.is
		if got := v.next(now); !got.Equal(tt.want) {
			t.Errorf("%s: after %v, want %v", name, got.Sub(now), tt.want.Sub(now))
		}
	}
}
