package policies

import (
	"math/rand/v2"
	"slices"
	"time"
)

// job is one task: a process with a host phase, a copy in,
// kernels one after another (with a pause of the host between them), and a copy out.
type job struct {
	arrive             time.Duration
	host, in, gap, out time.Duration
	kernel             time.Duration
	kernels            int
	deadline           time.Duration // relative to arrive; 0: none
}

// alone is how long the job takes with the GPU to itself.
func (j job) alone() time.Duration {
	return j.host + j.in + j.computing() + time.Duration(j.kernels-1)*j.gap + j.out
}

func (j job) computing() time.Duration { return time.Duration(j.kernels) * j.kernel }

// demand is the share of the GPU that it uses while it launches kernels.
func (j job) demand() float64 { return float64(j.kernel) / float64(j.kernel+j.gap) }

// mean is the share of the GPU that it uses over its whole length.
func (j job) mean() float64 { return float64(j.computing()) / float64(j.alone()) }

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// large is the matrix multiplication that was measured on an H200: 16384², two
// kernels of 1.61 s, launched at once: there is no stopping in between.
func large() job {
	return job{host: ms(1000), in: ms(210), kernel: ms(3220), kernels: 1, out: ms(560)}
}

// deadlines is the set: eight large tasks at once, the i-th with a
// deadline that leaves it 10 % and half a second after i−1 others, in shuffled
// order.
func deadlines(r *rand.Rand) []job {
	jobs := make([]job, 8)
	for i := range jobs {
		j := large()
		j.deadline = time.Duration(1.1*float64(j.alone()+time.Duration(i)*j.computing())) + ms(500)
		jobs[i] = j
	}
	r.Shuffle(len(jobs), func(a, b int) { jobs[a], jobs[b] = jobs[b], jobs[a] })
	for i := range jobs {
		jobs[i].arrive = time.Duration(i) * ms(30) // as fast as an engine starts containers
	}
	return jobs
}

// mixed is a set of small and ten times larger tasks that arrive at random and
// together want the share load of the GPU.
func mixed(r *rand.Rand, n int, load float64) []job {
	jobs := make([]job, n)
	mean, at := 0.0, time.Duration(0)
	for i := range jobs {
		j := job{host: ms(300), in: ms(20), kernel: ms(100), kernels: 3, out: ms(50)}
		if r.IntN(2) == 0 {
			j = job{host: ms(600), in: ms(150), kernel: ms(500), kernels: 6, out: ms(300)}
		}
		j.deadline = 4*j.alone() + time.Second
		jobs[i] = j
		mean += float64(j.computing()) / float64(n)
	}
	for i := range jobs {
		at += time.Duration(r.ExpFloat64() * mean / load)
		jobs[i].arrive = at
	}
	return jobs
}

// idle is paper P2's Fig. 4: five tasks that leave the GPU partly idle together.
func idle(r *rand.Rand) []job {
	jobs := make([]job, 5)
	for i := range jobs {
		jobs[i] = job{arrive: time.Duration(i)*ms(30) + time.Duration(r.IntN(int(ms(20)))), host: ms(500), in: ms(20),
			kernel: ms(13), gap: ms(87), kernels: 100, out: ms(10)}
	}
	return jobs
}

// small is paper P3's open problem: twenty tasks that compute for 90 ms.
func small(*rand.Rand) []job {
	jobs := make([]job, 20)
	for i := range jobs {
		jobs[i] = job{arrive: time.Duration(i) * ms(30), host: ms(900), in: ms(15), kernel: ms(22), kernels: 4, out: ms(40)}
	}
	return jobs
}

// feasible is a random set all of whose deadlines can be met: a schedule that
// takes the tasks in a random order meets them, with room for one kernel that
// cannot be stopped and for a few switches.
func feasible(r *rand.Rand) []job {
	jobs := make([]job, 2+r.IntN(7))
	longest := time.Duration(0)
	for i := range jobs {
		jobs[i] = job{
			arrive: ms(3000 * r.Float64()), host: ms(50 + 500*r.Float64()), in: ms(200 * r.Float64()),
			kernel: ms(20 + 400*r.Float64()), kernels: 1 + r.IntN(8), out: ms(200 * r.Float64()),
		}
		longest = max(longest, jobs[i].kernel)
	}
	slices.SortFunc(jobs, func(a, b job) int { return int(a.arrive - b.arrive) })
	order := r.Perm(len(jobs))
	for i, e := range simulate(jobs, way{policy: "order", order: order}) {
		jobs[i].deadline = e - jobs[i].arrive + 2*longest + ms(300)
	}
	return jobs
}
