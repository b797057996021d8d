package ladder_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
)

const ms = time.Millisecond

// The inference server and the trainers of the measurements: a request each 30 ms, and
// steps that fill the GPU.
func theServer() *actor { return server("server", 20*ms, 30*ms, 870*time.Microsecond) }

func trainers(n int) []*actor {
	var all []*actor
	for i := range n {
		all = append(all, trainer(fmt.Sprintf("trainer%d", i+1), 94*ms, 0))
	}
	return all
}

// large is one of the eight large tasks: host phase, copy in, 3.22 s of kernels, copy out.
func large(i int) *actor {
	a := labelled(fmt.Sprintf("t%02d", i))
	a.tenant.Deadline = 100*time.Second + time.Duration(i)*time.Millisecond
	a.phases = []phase{{false, time.Duration(960+100*i) * ms}, {true, 3220 * ms}, {false, 560 * ms}}
	return a
}

// small is one of the twelve small tasks: 0.09 s of kernels.
func small(i int) *actor {
	a := large(i)
	a.phases = []phase{{false, time.Duration(1700+60*i) * ms}, {true, 90 * ms}, {false, 100 * ms}}
	return a
}

func many(n int, make func(int) *actor) []*actor {
	var all []*actor
	for i := range n {
		all = append(all, make(i))
	}
	return all
}

// ends returns when the last task ended, and the mean of all.
func (w *world) ends() (last, mean time.Duration) {
	for _, a := range w.actors {
		last, mean = max(last, a.ended), mean+a.ended/time.Duration(len(w.actors))
	}
	return last, mean
}

// steps a second of all trainers.
func (w *world) steps() float64 {
	var got time.Duration
	for _, a := range w.actors {
		if a.endless {
			got += a.got
		}
	}
	return got.Seconds() / 0.094 / w.now.Seconds()
}

// The model's figures for what was measured on an H200, so that the model can be
// doubted: go test -v -run TestModelBesideMeasured.
func TestModelBesideMeasured(t *testing.T) {
	type setup struct {
		what, measured string
		actors         func() []*actor
		planned        bool
		slices         []time.Duration // set by hand
		figures        func(w *world) string
	}
	latency := func(w *world) string {
		s := w.actors[0]
		return fmt.Sprintf("%.2f, %.2f ms; %.1f", quantile(s.takes, 0.5).Seconds()*1000, quantile(s.takes, 0.99).Seconds()*1000, w.steps())
	}
	order := func(w *world) string {
		last, mean := w.ends()
		return fmt.Sprintf("%.1f, %.1f s", last.Seconds(), mean.Seconds())
	}
	parts := func(w *world) string {
		out := ""
		for _, a := range w.actors {
			out += fmt.Sprintf("%.0f ", 100*a.got.Seconds()/w.now.Seconds())
		}
		return out + "%"
	}
	with := func(n int) func() []*actor {
		return func() []*actor { return append([]*actor{theServer()}, trainers(n)...) }
	}
	shared := func() []*actor {
		all := trainers(3)
		for i, part := range []float64{0.1, 0.3, 0.6} {
			share(all[i], part)
		}
		return all
	}
	us := time.Microsecond
	for _, s := range []setup{
		{"server alone", "0.87, 1.32 ms", with(0), false, nil, latency},
		{"one trainer, default", "1.80, 2.61 ms; 10.3", with(1), false, nil, latency},
		{"one trainer, 1 s and 1 µs by hand", "1.11, 1.22 ms; 10.3", with(1), false, []time.Duration{time.Second, us}, latency},
		{"one trainer, 1 s and 500 µs by hand", "1.11, 1.61 ms; 10.4", with(1), false, []time.Duration{time.Second, 500 * us}, latency},
		{"one trainer, plan", "", with(1), true, nil, latency},
		{"four trainers, default", "6.55, 6.64 ms; 9.6", with(4), false, nil, latency},
		{"four trainers, 1 s and 500 µs by hand", "3.15, 3.24 ms; 6.9", with(4), false, []time.Duration{time.Second, 500 * us, 500 * us, 500 * us, 500 * us}, latency},
		{"four trainers, plan", "1.11, 1.97 ms; 9.7 (turns by hand)", with(4), true, nil, latency},
		{"slices of 1, 3 and 6 ms by hand", "10 29 57 %", func() []*actor { return trainers(3) }, false, []time.Duration{ms, 3 * ms, 6 * ms}, parts},
		{"shares of 10, 30 and 60 %, plan", "", shared, true, nil, parts},
		{"eight large, default: last, mean", "31.9, 31.6 s", func() []*actor { return many(8, large) }, false, nil, order},
		{"eight large, plan", "28.2, 17.2 s (ladder by hand)", func() []*actor { return many(8, large) }, true, nil, order},
		{"twelve small, default: last, mean", "3.41, 3.18 s", func() []*actor { return many(12, small) }, false, nil, order},
		{"twelve small, plan", "2.89, 2.32 s (ladder by hand)", func() []*actor { return many(12, small) }, true, nil, order},
	} {
		row := fmt.Sprintf("%-38s measured %-36s", s.what, s.measured)
		for _, cost := range []time.Duration{ladder.SwitchCost, 150 * us} {
			w := newWorld(s.planned, s.actors()...)
			w.cost = cost
			for i, d := range s.slices {
				w.actors[i].slice = d
			}
			w.run(40 * time.Second)
			if w.err != "" {
				t.Errorf("%s: %s", s.what, w.err)
			}
			row += fmt.Sprintf(" switch %3d µs: %-24s", cost.Microseconds(), s.figures(w))
		}
		t.Log(row)
	}
}
