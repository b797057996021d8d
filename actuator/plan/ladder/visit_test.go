package ladder_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// decoder makes one token after another: each takes so long on the GPU and, before the next
// one, on the host.
func decoder(token, host time.Duration) *actor {
	a := labelled("decode")
	a.tenant.Server, a.tenant.Deadline, a.tenant.Job.Request = true, 20*ms, true
	a.tenant.Job.Task = task.Task{ID: "decode"}
	a.phases, a.endless = []phase{{true, token}, {false, host}}, true
	return a
}

// between notes how long each step of an actor took, from settled on.
func (w *world) between(a *actor) *[]time.Duration {
	all, leaves, last := new([]time.Duration), 0, time.Duration(0)
	w.watch = func() {
		if a.leaves > leaves {
			if leaves = a.leaves; last > settled {
				*all = append(*all, w.now-last)
			}
			last = w.now
		}
	}
	return all
}

// A decode loop leaves the GPU for some microseconds after each token. Whoever is on beside
// it takes a slice there, so it is alone but for visits.
func TestADecodeLoopIsAloneButForVisits(t *testing.T) {
	aloneButForVisits(t, 800*time.Microsecond, 30*time.Microsecond, false)
	aloneButForVisits(t, 800*time.Microsecond, 30*time.Microsecond, true)
}

// One whose host side takes a third of each token leaves the GPU idle for as long, in gaps that
// are shorter than the two switches that it takes to use them.
func TestADecodeLoopWithAHostSideIsAloneButForVisits(t *testing.T) {
	aloneButForVisits(t, 640*time.Microsecond, 300*time.Microsecond, false)
}

// So it was on an H100, with PyTorch: a switch takes 0.18 ms, of which the trace counts 0.1 ms as time of the
// one that leaves, and use is known a second late.
func TestADecodeLoopOfPyTorchIsAloneButForVisits(t *testing.T) {
	aloneButForVisits(t, 870*time.Microsecond, 60*time.Microsecond, false, func(w *world) {
		w.lags, w.cost, w.save = true, 180*time.Microsecond, 100*time.Microsecond
	})
}

func aloneButForVisits(t *testing.T, token, host time.Duration, samples bool, as ...func(*world)) {
	t.Helper()
	for _, n := range []int{1, 3} {
		d := decoder(token, host)
		all := []*actor{d}
		for i := range n {
			all = append(all, trainer([]string{"a", "b", "c"}[i], 40*ms, 0))
		}
		w := newWorld(true, all...)
		w.samples = samples
		for _, set := range as {
			set(w)
		}
		steps := w.between(d)
		f := w.measureRun()
		if w.err != "" {
			t.Error(w.err)
		}
		if p := quantile(*steps, 0.99); p > (token+host)*12/10 {
			t.Errorf("beside %d: p99 between tokens is %v, alone %v", n, p, token+host)
		}
		if most := quantile(*steps, 1); most > 15*ms {
			t.Errorf("beside %d: a token took %v", n, most)
		}
		var others time.Duration
		for _, a := range all[1:] {
			others += f.got[a.tenant.ID]
		}
		if part := others.Seconds() / (over - settled).Seconds(); part < 0.04 || part > 0.08 {
			t.Errorf("beside %d: the others had %.1f %% of the GPU, want the floor, 5 %%", n, 100*part)
		}
		if calls := w.mostCalls(); calls > 25 {
			t.Errorf("beside %d: %d calls within a second", n, calls)
		}
		if w.longest > time.Second {
			t.Errorf("beside %d: one was off for %v", n, w.longest)
		}
	}
}

// However many take turns to visit, and however small their floor is, each has its part of it.
func TestVisitorsHaveEqualParts(t *testing.T) {
	for _, c := range []struct {
		n     int
		floor float64
	}{{2, 0.05}, {4, 0.05}, {5, 0.05}, {6, 0.05}, {12, 0.05}, {20, 0.05}, {1, 0.01}, {1, 0.005}, {1, 0.001}, {6, 0.005}} {
		for _, cost := range []time.Duration{400 * time.Microsecond, 180 * time.Microsecond} {
			d := decoder(870*time.Microsecond, 60*time.Microsecond)
			all := append([]*actor{d}, trainers(c.n)...)
			w := newWorld(true, all...)
			w.lags, w.cost, w.save, w.floor = true, cost, cost/2, c.floor
			steps := w.between(d)
			parts := w.parts(settled, 40*time.Second)
			least, most := 1.0, 0.0
			for _, a := range all[1:] {
				least, most = min(least, parts[a.tenant.ID]), max(most, parts[a.tenant.ID])
			}
			p50, p99 := quantile(*steps, 0.5), quantile(*steps, 0.99)
			t.Logf("%d, floor %v, %v a switch: from %.2f to %.2f %%, tokens %v, %v, %d calls", c.n, c.floor, cost, 100*least, 100*most, p50, p99, w.mostCalls())
			due := c.floor / float64(c.n)
			if w.err != "" || least < 0.7*due || most > 1.6*due+0.001 || p50 > 1100*time.Microsecond || w.mostCalls() > 100 || w.longest > time.Second {
				t.Errorf("%d, floor %v, %v a switch: from %.2f to %.2f %%, tokens %v, %v, %d calls, off for %v %s", c.n, c.floor, cost, 100*least, 100*most, p50, p99, w.mostCalls(), w.longest, w.err)
			}
		}
	}
}

// Beside a server that fills the GPU the floor is kept, however small it is.
func TestASmallFloorBesideAServerThatFillsTheGPU(t *testing.T) {
	for _, floor := range []float64{0.005, 0.01, 0.02, 0.03} {
		for _, kernel := range []time.Duration{10 * ms, 200 * ms} {
			d, a := decoder(kernel, 0), trainer("trainer", 40*ms, 0)
			w := newWorld(true, d, a)
			w.lags, w.floor = true, floor
			if part := w.parts(settled, 60*time.Second)[a.tenant.ID]; w.err != "" || part < 0.8*floor {
				t.Errorf("floor %v, kernels of %v: %.2f %% %s", floor, kernel, 100*part, w.err)
			}
		}
	}
}

// Shares beside a server without a break are those of visits.
func TestVisitsAreAsSharesSay(t *testing.T) {
	w := newWorld(true, decoder(870*time.Microsecond, 60*time.Microsecond), share(trainer("a", 40*ms, 0), 0.1), trainer("b", 40*ms, 0))
	w.lags, w.floor = true, 0.02
	parts := w.parts(settled, 60*time.Second)
	if w.err != "" || parts["a"] < 0.09 || parts["b"] < 0.016 || parts["a"]+parts["b"] > 0.14 || w.longest > time.Second {
		t.Errorf("%.1f and %.1f %%, want 10 and 2; off for %v %s", 100*parts["a"], 100*parts["b"], w.longest, w.err)
	}
}

// A process that has a context and computes next to nothing (a notebook) takes nothing from the others.
func TestIdleProcessesTakeNothing(t *testing.T) {
	for _, c := range []struct {
		kernel, host time.Duration
		want         float64 // of the GPU, for the trainer
	}{{870 * time.Microsecond, 60 * time.Microsecond, 0.035}, {5 * ms, 5 * ms, 0.25}} {
		for _, first := range []bool{false, true} {
			for n := range 4 {
				d, a := decoder(c.kernel, c.host), trainer("trainer", 40*ms, 0)
				all := []*actor{d, a}
				for i := range n {
					all = append(all, trainer([]string{"x", "y", "z"}[i], 10*time.Microsecond, 5*time.Second))
				}
				if first { // in the queue
					a.tenant.ID, a.arrive = "zz", time.Second
				}
				w := newWorld(true, all...)
				w.lags = true
				part := w.parts(settled, 40*time.Second)[a.tenant.ID]
				t.Logf("%d idle, first %v, kernels of %v: %.1f %%", n, first, c.kernel, 100*part)
				if w.err != "" || part < c.want {
					t.Errorf("%d idle, first %v, kernels of %v: the trainer had %.1f %%, want %.0f %s", n, first, c.kernel, 100*part, 100*c.want, w.err)
				}
			}
		}
	}
}

// Beside a server with a short deadline, where trainers take turns, many idle processes take no turns from them. They did
// once several of them were on all the time: after some 18 s.
func TestIdleProcessesTakeNoTurns(t *testing.T) {
	a, b := trainer("a", 94*ms, 0), trainer("b", 94*ms, 0)
	a.tenant.Job.Batch, a.tenant.Deadline = false, 1000*time.Second
	all := []*actor{server("server", 20*ms, 60*ms, ms), a, b}
	for i := range 16 {
		all = append(all, trainer(fmt.Sprintf("idle%02d", i), 100*time.Microsecond, time.Hour))
	}
	w := newWorld(true, all...)
	w.lags = true
	parts := w.parts(20*time.Second, 35*time.Second)
	if w.err != "" || parts["a"]+parts["b"] < 0.7 || parts["a"] < 0.35 {
		t.Errorf("the trainers had %.1f and %.1f %% %s", 100*parts["a"], 100*parts["b"], w.err)
	}
}

// loads has an actor load its data for a while before its phases, which it goes through for longer than a test lasts.
func (a *actor) loads(d time.Duration) {
	a.phases, a.endless = append([]phase{{false, d}}, slices.Repeat(a.phases, 3000)...), false
}

// A trainer that loads its data for some seconds before it computes: tokens are slower for as long as it takes
// until switches were read, and never by a whole slice of the trainer.
func TestATrainerThatBeginsLateSlowsFewTokens(t *testing.T) {
	for _, wait := range []time.Duration{0, 500 * ms, 3200 * ms, 7700 * ms} {
		for _, samples := range []time.Duration{0, 300 * ms, 700 * ms} {
			d, b := decoder(870*time.Microsecond, 60*time.Microsecond), at(trainer("b", 40*ms, 0), 2*time.Second+samples)
			b.loads(wait)
			w := newWorld(true, d, b)
			w.lags, w.cost, w.save = true, 180*time.Microsecond, 100*time.Microsecond
			var slow time.Duration
			var slower, slowest int
			last, leaves := time.Duration(0), 0
			w.watch = func() {
				if d.leaves == leaves {
					return
				}
				if took := w.now - last; leaves > 0 && took > 12*930*time.Microsecond/10 {
					slow += took
					slower++
					if took > 2*ms && took < 9*ms {
						slowest++
					}
				}
				last, leaves = w.now, d.leaves
			}
			w.run(12 * time.Second)
			if w.err != "" || slow > 2500*ms || slowest > 10 {
				t.Errorf("waits %v, comes %v late: %d tokens were slow for %v, %d of them by a slice %s", wait, samples, slower, slow, slowest, w.err)
			}
			t.Logf("waits %v, comes %v late: %d tokens were slow for %v, %d of them by a slice", wait, samples, slower, slow, slowest)
		}
	}
}

// Whatever a loop's kernels and gaps last, and however many others there are: its median step is at most a
// third longer than alone, as by the others' slices in a gap, and the others have their floor or more.
func TestNoLoopIsMuchSlowerBesideOthers(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct{ token, host time.Duration }{
		{300 * us, 300 * us}, {640 * us, 100 * us}, {640 * us, 640 * us}, {ms, ms}, {ms, 2 * ms}, {2 * ms, ms}, {5 * ms, 300 * us}, {5 * ms, 5 * ms}, {10 * ms, 2 * ms},
	} {
		for _, cost := range []time.Duration{150 * us, 400 * us} {
			for _, n := range []int{1, 3} {
				d := decoder(c.token, c.host)
				all := []*actor{d}
				for i := range n {
					all = append(all, trainer([]string{"a", "b", "c"}[i], 40*ms, 0))
				}
				w := newWorld(true, all...)
				w.cost = cost
				steps := w.between(d)
				f := w.measureRun()
				others := time.Duration(0)
				for _, a := range all[1:] {
					others += f.got[a.tenant.ID]
				}
				slower, part := quantile(*steps, 0.5).Seconds()/(c.token+c.host).Seconds(), others.Seconds()/(over-settled).Seconds()
				if w.err != "" || slower > 1.34 || part < 0.045 {
					t.Errorf("%v on the GPU, %v on the host, beside %d, %v a switch: a step takes %.2f × as long, the others have %.1f %% %s", c.token, c.host, n, cost, slower, 100*part, w.err)
				}
			}
		}
	}
}

// A server whose requests pass for one interval, and that leaves a third of the GPU idle,
// has others beside it again.
func TestAServerWithGapsIsNotAlone(t *testing.T) {
	for _, samples := range []bool{false, true} {
		s, b := server("s", 5*ms, 10*ms, 6*ms), trainer("b", 40*ms, 0)
		w := newWorld(true, s, b)
		w.samples = samples
		w.run(30 * time.Second)
		before := b.got
		w.run(60 * time.Second)
		if w.err != "" {
			t.Error(w.err)
		}
		if part := (b.got - before).Seconds() / 30; part < 0.15 {
			t.Errorf("by samples %v: the trainer had %.1f %% of the GPU in the last half of a minute", samples, 100*part)
		}
	}
}

// Four trainers that fill the GPU take turns beside a server for as long as it lasts, though
// a turn is much shorter than what the device's utilisation tells of.
func TestFourTrainersTakeTurns(t *testing.T) {
	all := []*actor{server("s", 20*ms, 30*ms, time.Millisecond)}
	for _, id := range []string{"a", "b", "c", "d"} {
		all = append(all, at(trainer(id, 80*ms, 0), time.Second))
	}
	w := newWorld(true, all...)
	w.lags = true
	w.run(25 * time.Second)
	if w.err != "" {
		t.Error(w.err)
	}
	from := len(all[0].waits) - 600
	if p := quantile(all[0].waits[from:], 0.99); p > time.Millisecond {
		t.Errorf("p99 of a request's wait is %v", p)
	}
}

// Four trainers load their data for a while before they compute: what they left unused then counts for 20 s at most.
func TestFourTrainersThatLoadFirstTakeTurns(t *testing.T) {
	for _, load := range []time.Duration{3 * time.Second, 7 * time.Second, 12 * time.Second} {
		for _, apart := range []time.Duration{0, 300 * ms, time.Second} {
			all := []*actor{server("s", 20*ms, 30*ms, time.Millisecond)}
			for i, id := range []string{"a", "b", "c", "d"} {
				b := at(trainer(id, 80*ms, 0), time.Second)
				b.loads(load + time.Duration(i)*apart)
				all = append(all, b)
			}
			w := newWorld(true, all...)
			w.lags = true
			w.run(time.Second + load + 3*apart + 20*time.Second)
			n := len(all[0].waits)
			w.run(w.now + 20*time.Second)
			if p := quantile(all[0].waits[n:], 0.99); p > time.Millisecond || w.err != "" {
				t.Errorf("they load for %v, %v apart: p99 of a request's wait is %v %s", load, apart, p, w.err)
			}
		}
	}
}

// A decode loop that has far less to do than when its gaps were too short: others are on again soon, not in five minutes.
func TestALoopWithLessToDoIsNotAloneForLong(t *testing.T) {
	d, b := decoder(870*time.Microsecond, 60*time.Microsecond), trainer("b", 40*ms, 0)
	d.phases, d.endless = append(slices.Repeat(d.phases, 20000), slices.Repeat([]phase{{true, 500 * time.Microsecond}, {false, 6 * ms}}, 20000)...), false
	w := newWorld(true, d, b)
	w.lags = true
	if part := w.parts(20*time.Second, 40*time.Second)["b"]; part < 0.5 || w.err != "" {
		t.Errorf("the trainer had %.1f %% of the GPU, want most of it %s", 100*part, w.err)
	}
}

// A decode loop is one interval that never ends, and so late for ever. It keeps its place beside another server,
// however seldom that has requests; a task whose deadline can be met has half of the GPU, and tokens take as long as by default.
func TestADecodeLoopBesideOtherDeadlines(t *testing.T) {
	others := map[string]func() *actor{"task": func() *actor {
		a := trainer("other", 40*ms, 0)
		a.tenant.Job.Batch, a.tenant.Deadline = false, time.Hour
		return a
	}}
	for _, every := range []time.Duration{30 * ms, 100 * ms, time.Second} {
		others["server each "+every.String()] = func() *actor { return server("other", 50*ms, every, ms) }
	}
	for name, other := range others {
		for batch := range 3 {
			tokens, answers := map[bool][]time.Duration{}, map[bool]time.Duration{}
			for _, planned := range []bool{false, true} {
				d, o := decoder(870*time.Microsecond, 60*time.Microsecond), other()
				w := newWorld(planned, append([]*actor{d, o}, trainers(batch)...)...)
				w.lags = true
				steps := w.between(d)
				part := w.parts(settled, 60*time.Second)["other"]
				tokens[planned], answers[planned] = *steps, quantile(o.takes, 0.99)
				says := fmt.Sprintf("beside a %s and %d trainers, planned %v: a token's p50 is %v, p99 %v, at most %v; the other has %.1f %%, its answers' p99 is %v %s",
					name, batch, planned, quantile(*steps, 0.5), quantile(*steps, 0.99), quantile(*steps, 1), 100*part, answers[planned], w.err)
				t.Log(says)
				isTask := name == "task"
				if planned && (w.err != "" || quantile(*steps, 0.99) > quantile(tokens[false], 0.99)*21/20 || quantile(*steps, 1) > 20*ms ||
					!isTask && quantile(*steps, 0.5) > ms || isTask && part < 0.45 || answers[true] > answers[false]+visitMost) {
					t.Error(says)
				}
			}
		}
	}
}

// visitMost is the longest visit, and what it takes beside that.
const visitMost = 12 * ms
