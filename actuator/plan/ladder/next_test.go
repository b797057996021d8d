package ladder_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Eight tasks with deadlines that leave a tenth, as the set deadlines of laxity-bench arbitrate: each
// starts up, computes, and copies its results for a second. What the GPU does meanwhile is the next one's work,
// not all others' alike: on an H100 that cost the next one up to 0.8 s, and some their deadlines.
func TestWhoIsNextComputesWhileTheFirstCopiesItsResults(t *testing.T) {
	const alone, computing = 6900 * ms, 3380 * ms
	for _, lags := range []bool{false, true} {
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 1))
			var all []*actor
			for i, place := range r.Perm(8) {
				a := labelled(fmt.Sprint("t", i))
				a.phases = []phase{{false, 2200*ms + time.Duration(r.IntN(1200))*ms}, {true, computing}, {false, 800*ms + time.Duration(r.IntN(350))*ms}}
				a.tenant.Deadline = (alone+time.Duration(i)*computing)*11/10 + 500*ms
				all = append(all, at(a, time.Duration(place)*50*ms))
			}
			w := newWorld(true, all...)
			w.lags, w.traceAt = lags, time.Duration(r.IntN(1000))*ms
			through := make([]time.Duration, len(all))
			w.watch = func() {
				for i, a := range all {
					if a.leaves == 1 && through[i] == 0 {
						through[i] = w.now
					}
				}
			}
			w.run(45 * time.Second)
			for i, a := range all {
				if took := a.ended - a.arrive; a.ended == 0 || took > a.tenant.Deadline {
					t.Errorf("seed %d, lags %v: %s took %v, its deadline is %v", seed, lags, a.tenant.ID, took, a.tenant.Deadline)
				}
				if i > 0 && through[i]-through[i-1] > computing*107/100 {
					t.Errorf("seed %d, lags %v: %s was through %v after the one before it", seed, lags, a.tenant.ID, through[i]-through[i-1])
				}
			}
			if w.err != "" {
				t.Error(w.err)
			}
		}
	}
}
