package policies

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/bench"
)

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// The simulation agrees with what was measured on an H200: 32.2 s for eight by
// default, and one behind the other by pauses slower than that.
func TestAgreesWithWhatWasMeasured(t *testing.T) {
	jobs := make([]job, 8)
	for i := range jobs {
		jobs[i] = large()
	}
	makespan := func(w way) float64 {
		last := time.Duration(0)
		for _, end := range simulate(jobs, w) {
			last = max(last, end)
		}
		return last.Seconds()
	}
	for _, tt := range []struct {
		way      way
		low, top float64
	}{
		{none, 30.5, 33.5},
		{fifo, 36, 41},
	} {
		if got := makespan(tt.way); got < tt.low || got > tt.top {
			t.Errorf("%s: %.1f s, want %v–%v", tt.way.name(), got, tt.low, tt.top)
		}
	}
}

func TestAloneIsAlone(t *testing.T) {
	for _, w := range ways {
		j := large()
		got := simulate([]job{j}, w)[0]
		if late := got - j.alone(); late < 0 || late > 5*time.Millisecond {
			t.Errorf("%s: %v, alone %v", w.name(), got, j.alone())
		}
	}
}

// Everybody's tasks end, in every way, and nobody is faster than alone.
func TestEverythingEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom(ways).Draw(t, "way")
		jobs := feasible(source(rapid.Uint64().Draw(t, "seed")))
		for i := range jobs {
			if rapid.IntRange(0, 2).Draw(t, "batch") == 0 {
				jobs[i].deadline = 0
			}
			jobs[i].gap = ms(rapid.Float64Range(0, 50).Draw(t, "gap"))
		}
		for i, end := range simulate(jobs, w) {
			if end < jobs[i].arrive+jobs[i].alone()-time.Microsecond {
				t.Fatalf("%s: job %d ended %v too early", w.name(), i, jobs[i].arrive+jobs[i].alone()-end)
			}
		}
	})
}

// A batch task beside an endless row of tasks with deadlines gets its turn.
func TestNobodyStarves(t *testing.T) {
	for _, w := range []way{edf, {policy: "llf"}} {
		jobs := []job{{host: ms(200), kernel: ms(200), kernels: 20}}
		for at := time.Duration(0); at < 5*time.Minute; at += ms(1000) {
			jobs = append(jobs, job{arrive: at, host: ms(110), kernel: ms(250), kernels: 4, deadline: ms(30_000)})
		}
		last := jobs[len(jobs)-1].arrive
		if end := simulate(jobs, w)[0]; end > last {
			t.Errorf("%s: the batch task ended at %v, after everybody else's last arrival", w.name(), end)
		}
	}
}

// What leaves the GPU idle is not slowed down, and small tasks are not either.
func TestSharingIsNotSlower(t *testing.T) {
	for _, s := range []set{{"idle", idle}, {"small", small}} {
		jobs := s.make(source(1))
		base := last(simulate(jobs, none))
		if got := last(simulate(jobs, edf)); float64(got) > 1.02*float64(base) {
			t.Errorf("%s: %v, by default %v", s.name, got, base)
		}
	}
}

func last(ends []time.Duration) (t time.Duration) {
	for _, e := range ends {
		t = max(t, e)
	}
	return t
}

func TestExperiment(t *testing.T) {
	rows, err := run(t.Context(), bench.Env{Seed: 1, Quick: true, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	again, _ := run(t.Context(), bench.Env{Seed: 1, Quick: true, Log: t.Logf})
	e := Experiment()
	got, same := e.FiguresOf(rows), e.FiguresOf(again)
	for i, f := range got {
		if f.Value != same[i].Value {
			t.Errorf("%s is %v, then %v: the same seed must give the same", f.Name, f.Value, same[i].Value)
		}
		t.Logf("%s = %v %s %.2f × %s", f.Name, f.Value, f.Unit, f.Ratio, f.Against)
	}
	for _, line := range e.Table(rows) {
		t.Log(line)
	}
}
