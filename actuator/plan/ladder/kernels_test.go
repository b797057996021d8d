package ladder_test

import (
	"testing"
	"time"
)

// A request of many kernels gives the GPU away after each of them. However long its deadline is, and so the
// time that one kernel may wait, it takes no longer than by default, and much less where that is long.
func TestARequestOfManyKernelsDoesNotWaitAtEach(t *testing.T) {
	const kernel, host = 870 * time.Microsecond, 60 * time.Microsecond
	for _, deadline := range []time.Duration{20 * ms, 100 * ms, 500 * ms, time.Second, 2 * time.Second} {
		for _, n := range []int{10, 100} {
			for _, others := range []int{1, 2, 3} {
				alone, took := time.Duration(n)*(kernel+host), map[bool]time.Duration{}
				for _, planned := range []bool{false, true} {
					s := kernels("s", deadline, n, kernel, host, 300*ms)
					w := newWorld(planned, append([]*actor{s}, trainers(others)...)...)
					w.lags = true
					w.run(40 * time.Second)
					took[planned] = quantile(s.takes[len(s.takes)/3:], 0.5)
					if w.err != "" || w.longest > time.Second {
						t.Error(w.err, w.longest)
					}
				}
				t.Logf("deadline %v, %d kernels (%v alone), %d trainers: %v, %v by default", deadline, n, alone, others, took[true], took[false])
				if took[true] > took[false]*21/20 || others > 1 && n > 10 && took[true] > 3*alone {
					t.Errorf("deadline %v, %d kernels (%v alone), %d trainers: %v, %v by default", deadline, n, alone, others, took[true], took[false])
				}
			}
		}
	}
}

// Equals beside a server have equal parts, once the others have waited as long as the first was to come first.
func TestEqualsInTurnsHaveEqualParts(t *testing.T) {
	for n := 2; n <= 4; n++ {
		all := append([]*actor{server("s", 20*ms, 30*ms, ms)}, trainers(n)...)
		w := newWorld(true, all...)
		w.lags = true
		parts := w.parts(60*time.Second, 120*time.Second)
		least, most := 1.0, 0.0
		for _, a := range all[1:] {
			least, most = min(least, parts[a.tenant.ID]), max(most, parts[a.tenant.ID])
		}
		t.Logf("%d: from %.1f to %.1f %%", n, 100*least, 100*most)
		if w.err != "" || most-least > 0.03 || float64(n)*least < 0.8 {
			t.Errorf("%d: from %.1f to %.1f %% %s", n, 100*least, 100*most, w.err)
		}
	}
}
