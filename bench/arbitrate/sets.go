package arbitrate

import (
	"math/rand/v2"
)

// kind is what tasks of the same sort do. Sizes are for an H200.
type kind struct {
	name       string // where a set has several
	n, kernels int
	host       float64 // seconds of the host phase
	// syncEach: it waits for each kernel before it launches the next, so that it
	// can be stopped in between.
	syncEach bool
	// repeat is how many such rounds one task has; 0 is one.
	repeat int
	// alone is measured for sets with deadlines.
	alone alone
}

// alone is what one task takes without others, seconds.
type alone struct{ took, kernels float64 }

// set is a number of tasks.
type set struct {
	name   string
	kinds  []kind
	counts []int // how many tasks, ascending
	// due gives n tasks deadlines and moments to begin; nil: they have no deadline
	// and begin together, as fast as the engine starts them.
	due func(s set, n int, r *rand.Rand) []job
	// filled: kernels are repeated until they are nine tenths of a lone task.
	filled bool
	// resumed: a run of it may take several portions, way by way.
	resumed bool
	// noTurns: it is not run one after another.
	noTurns bool
	// turnsAt is the count that is run one after another, once, in a set that is resumed.
	turnsAt int
	// asShipped: the way laxity is the actuator as it comes, with what it has
	// learned, not --set policy=….
	asShipped bool
}

func (s set) highest() int { return s.counts[len(s.counts)-1] }

func (s set) ways() []string {
	if s.due != nil {
		return []string{timeSliced, p3, fifo, edf, llf, mps}
	}
	if s.noTurns {
		return []string{timeSliced, p3, laxity, mps}
	}
	return []string{timeSliced, p3, laxity, mps, oneByOne}
}

func sets() []set {
	large := kind{n: 16384, kernels: 2, host: 0.55}
	return []set{
		{name: "large", kinds: []kind{large}, counts: []int{1, 3, 5, 8}},
		{name: "middle", kinds: []kind{{n: 8192, kernels: 4, host: 0.3}}, counts: []int{1, 5, 10}},
		{name: "small", kinds: []kind{{n: 4096, kernels: 4, host: 0.1}}, counts: []int{1, 10, 12, 20}},
		{name: "idle", kinds: []kind{{n: 4096, kernels: 1, host: 0.12, repeat: 40}}, counts: []int{5}, asShipped: true, noTurns: true},
		{name: "deadlines", kinds: []kind{large}, counts: []int{8}, due: inShuffledOrder},
	}
}

// jobs are n tasks of the set. Those with deadlines are the same for all ways of
// a run, and others in the next run.
func (s set) jobs(n int, r *rand.Rand) []*job {
	all := make([]job, n)
	if s.due != nil {
		all = s.due(s, n, r)
	}
	out := make([]*job, n)
	for i := range all {
		if all[i].number = i + 1; all[i].n == 0 {
			all[i].kind = s.kinds[0]
		}
		out[i] = &all[i]
	}
	return out
}

// arrivalGap is between the arrivals of two tasks of the set deadlines: short
// beside their host phase, so that all are there before the first one computes.
const arrivalGap = 0.05

// inShuffledOrder gives the i-th task, from 0, enough for those before it and a
// tenth more. They begin in shuffled order.
func inShuffledOrder(s set, n int, r *rand.Rand) []job {
	jobs := make([]job, n)
	k := s.kinds[0]
	for i, place := range r.Perm(n) {
		jobs[i] = job{kind: k, deadline: 1.1*(k.alone.took+float64(i)*k.alone.kernels) + 0.5, after: arrivalGap * float64(place)}
	}
	return jobs
}
