package policies

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/bench"
)

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// The simulation agrees with what was measured on an H200: 32.2 s for eight by
// default, 28.5 s with the gate, and one behind the other at first sight slower
// than by default.
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
		{way{policy: "none"}, 30.5, 33.5},
		{way{policy: "fifo", gate: true}, 27, 28.8},
		{way{policy: "fifo"}, 36, 41},
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
			jobs[i].open = ms(rapid.Float64Range(0, 300).Draw(t, "context"))
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
	for _, w := range []way{{policy: "edf"}, {policy: "llf"}, {policy: "edf", gate: true}, {policy: "llf", gate: true}} {
		jobs := []job{{open: ms(100), host: ms(100), kernel: ms(200), kernels: 20}}
		for at := time.Duration(0); at < 5*time.Minute; at += ms(1000) {
			jobs = append(jobs, job{arrive: at, open: ms(100), host: ms(10), kernel: ms(250), kernels: 4, deadline: ms(30_000)})
		}
		last := jobs[len(jobs)-1].arrive
		if end := simulate(jobs, w)[0]; end > last {
			t.Errorf("%s: the batch task ended at %v, after everybody else's last arrival", w.name(), end)
		}
	}
}

// EDF and LLF meet every deadline of the set.
func TestEDF(t *testing.T) {
	for seed := range uint64(5) {
		jobs := deadlines(source(seed))
		for _, w := range []way{{policy: "edf", gate: true}, {policy: "llf", gate: true}, {policy: "edf", gate: true, blind: true}} {
			if n := hits(jobs, simulate(jobs, w)); n != len(jobs) {
				t.Errorf("seed %d, %s: %d of %d", seed, w.name(), n, len(jobs))
			}
		}
	}
}

// Where starting at once costs something, the task with the first deadline misses it
// by that; kept from starting beside it, the others lose nothing.
func TestStartupAdmission(t *testing.T) {
	for seed := range uint64(5) {
		jobs := crowd(source(seed))
		for _, policy := range []string{"edf", "llf"} {
			at := simulate(jobs, way{policy: policy, gate: true, crowd: true})
			if n := hits(jobs, at); n == len(jobs) {
				t.Errorf("seed %d, %s: all are hit though they start at once: the set shows nothing", seed, policy)
			}
			for _, blind := range []bool{false, true} {
				kept := simulate(jobs, way{policy: policy, gate: true, blind: blind})
				if n := hits(jobs, kept); n != len(jobs) {
					t.Errorf("seed %d, %s, blind %v: %d of %d", seed, policy, blind, n, len(jobs))
				}
				if last(kept) > last(at) {
					t.Errorf("seed %d, %s, blind %v: makespan %v, starting at once %v", seed, policy, blind, last(kept), last(at))
				}
			}
		}
	}
}

// Where no deadline is at risk all start at once.
func TestStartupAdmissionWithoutNeed(t *testing.T) {
	ample := func(r *rand.Rand) []job {
		jobs := crowd(r)
		for i := range jobs {
			jobs[i].deadline += time.Minute
		}
		return jobs
	}
	none := func(r *rand.Rand) []job {
		jobs := crowd(r)
		for i := range jobs {
			jobs[i].deadline = 0
		}
		return jobs
	}
	for name, jobs := range map[string][]job{"ample": ample(source(1)), "none": none(source(1))} {
		for _, policy := range []string{"edf", "llf"} {
			at, kept := simulate(jobs, way{policy: policy, gate: true, crowd: true}), simulate(jobs, way{policy: policy, gate: true})
			if !slices.Equal(at, kept) {
				t.Errorf("%s, %s: ends %v, starting at once %v", name, policy, kept, at)
			}
		}
	}
}

func TestEDFNeverHitsFewerThanFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := feasible(source(rapid.Uint64().Draw(t, "seed")))
		edf, fifo := hits(jobs, simulate(jobs, edfGate)), hits(jobs, simulate(jobs, fifoGate))
		if edf < fifo {
			t.Fatalf("EDF hits %d, FIFO %d", edf, fifo)
		}
	})
}

// What leaves the GPU idle is not slowed down, and small tasks are not either.
func TestSharingIsNotSlower(t *testing.T) {
	for _, s := range []set{{"idle", idle}, {"small", small}} {
		jobs := s.make(source(1))
		base := last(simulate(jobs, none))
		for _, w := range []way{{policy: "edf"}, {policy: "edf", gate: true}, {policy: "edf", gate: true, blind: true}} {
			if got := last(simulate(jobs, w)); float64(got) > 1.02*float64(base) {
				t.Errorf("%s, %s: %v, by default %v", s.name, w.name(), got, base)
			}
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
