package ladder_test

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// draw makes a world; the same for the same number, with the plan and without.
func draw(number int, planned bool) *world {
	r := rand.New(rand.NewPCG(7, uint64(number))) //nolint:gosec // not a secret
	var all []*actor
	chance := func(of float64) bool { return r.Float64() < of }
	for i := range r.IntN(3) {
		every := uniform(r, 10*ms, 60*ms)
		s := server(fmt.Sprintf("server%d", i), uniform(r, 5*ms, 50*ms), every, uniform(r, 200*time.Microsecond, min(3*ms, every/5)))
		switch {
		case chance(0.2):
			s.tenant.Deadline = uniform(r, 100*ms, 2*time.Second)
		case chance(0.1):
			s.service = s.every * 6 / 5 // more than there is
		case chance(0.12):
			s.service = s.every * 9 / 10
		}
		all = append(all, at(s, uniform(r, 0, 100*ms)))
	}
	for i := range 1 + r.IntN(4) {
		gap := time.Duration(0)
		step := uniform(r, 5*ms, 100*ms)
		if chance(0.35) {
			gap = uniform(r, step/10, step)
		}
		a := trainer(fmt.Sprintf("trainer%d", i), step, gap)
		switch {
		case chance(0.2):
			a.tenant.Share = 0.1 + 0.5*r.Float64()
		case chance(0.25):
			a.tenant.Job.Batch, a.tenant.Deadline = false, uniform(r, 10*time.Second, 60*time.Second)
		}
		if chance(0.1) {
			a.tenant.KeepOn = "it is on several GPUs"
		}
		all = append(all, at(a, uniform(r, 0, 500*ms)))
	}
	if chance(0.25) {
		a := unlabelled(trainer("other", uniform(r, 5*ms, 100*ms), 0))
		if chance(0.5) {
			a.tenant.Labelled, a.tenant.Never = true, true
		}
		all = append(all, a)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	w := newWorld(planned, all...)
	w.floor = []float64{0.05, 0.1, 0.2}[r.IntN(3)]
	w.measured = chance(0.8)
	w.lags = true
	if chance(0.3) {
		w.order = llf
	}
	return w
}
