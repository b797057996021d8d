package ladder_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// comeAndGo are containers that come and go beside a server, a trainer and one more program that are there all the
// time: their tasks have a deadline, are of class batch, or carry no label.
func comeAndGo(seed uint64, n int) (all []*actor) {
	const kernel = 209 * ms             // of a matrix of 8192², on an H200
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not a secret
	for i := range n {
		a := labelled(fmt.Sprint(i))
		a.arrive = time.Duration(2+3*i) * time.Second
		a.phases = []phase{{false, 600 * ms}, {true, time.Duration(1+r.IntN(6)) * kernel}, {false, 100 * ms}}
		switch r.IntN(6) {
		case 0:
			a.tenant.Job.Batch = true
		case 1, 2:
			unlabelled(a)
		default:
			a.tenant.Deadline = uniform(r, 2*time.Second, 20*time.Second)
		}
		all = append(all, a)
	}
	return all
}

// Beside containers that are not ours to act on, what a task leaves while it is off is theirs. So nobody is off, tasks
// with a deadline take as long as by default until they are late, and class batch has two thirds of its part. (They were off
// in turns: on an H200 tasks of 0.2 and of 1.3 s had not ended after two minutes, and others missed deadlines that they meet by default.)
func TestNobodyStandsForContainersThatAreNotOurs(t *testing.T) {
	const n = 60
	took, late := map[string][]time.Duration{}, map[bool]int{}
	for seed := range uint64(4) {
		for _, planned := range []bool{false, true} {
			churn := comeAndGo(seed, n)
			w := newWorld(planned, append([]*actor{
				server("server", 300*ms, 280*ms, 27*ms),
				unlabelled(trainer("trainer", 840*ms, 100*ms)), unlabelled(trainer("other", 420*ms, 100*ms)),
			}, churn...)...)
			w.lags = true
			w.run(3 * n * time.Second)
			if w.err != "" || w.longest > 0 {
				t.Errorf("seed %d: %s; somebody was off for %v", seed, w.err, w.longest)
			}
			for _, a := range churn[:n-5] { // the last ones have had no time to end
				kind, d := "deadline", a.ended-a.arrive
				switch {
				case a.ended == 0:
					t.Fatalf("seed %d, planned %v: %s has not ended", seed, planned, a.tenant.ID)
				case a.tenant.Job.Batch:
					kind = "batch"
				case !a.tenant.Labelled:
					kind = "unlabelled"
				case d > a.tenant.Deadline:
					late[planned]++
				}
				key := fmt.Sprint(kind, " ", planned)
				took[key] = append(took[key], d)
			}
		}
	}
	for kind, most := range map[string]float64{"deadline": 1.25, "unlabelled": 1.1, "batch": 1.6} {
		for _, q := range []float64{0.5, 0.9, 1} {
			mine, def := quantile(took[kind+" true"], q), quantile(took[kind+" false"], q)
			if mine.Seconds() > most*def.Seconds() {
				t.Errorf("%s: quantile %.1f of %d is %v, %v by default", kind, q, len(took[kind+" true"]), mine, def)
			}
		}
		t.Logf("%s: %v, by default %v", kind, slices.Max(took[kind+" true"]), slices.Max(took[kind+" false"]))
	}
	if late[true] > late[false]*6/5 {
		t.Errorf("%d are late, %d by default", late[true], late[false])
	}
}
