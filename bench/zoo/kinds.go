package zoo

import (
	"fmt"
	"math/rand/v2"
)

// Where a program's source is.
const (
	animal  = "animal"  // src/animal.c: the driver API; both devices
	runtime = "runtime" // src/runtime.cu: the CUDA runtime; needs nvcc
	torch   = "torch"   // src/torch_animal.py: needs PyTorch
)

// kind is one kind of program.
type kind struct {
	name string
	from string // animal, runtime or torch
	verb string // its first argument
	// often is how often it is drawn, against the others'.
	often int
	// code is the exit status that the program means to end with; silent: it says no
	// result.
	code   int
	silent bool
	// stops: it stops itself.
	stops bool
	// memory is the most that it holds of a GPU, contexts included, in GiB.
	memory int
	// args draws its arguments.
	args func(r *rand.Rand) []string
}

// between draws an argument of a range that includes both ends.
func between(r *rand.Rand, name string, least, most int) string {
	return fmt.Sprintf("%s=%d", name, least+r.IntN(most-least+1))
}

// delays are those between loading the driver, cuInit, the context and the first
// allocation.
func delays(r *rand.Rand, host int) []string {
	return []string{between(r, "load", 0, 80), between(r, "init", 0, 100), between(r, "host", host/3, host), between(r, "seed", 1, 1<<20)}
}

func task(host, least, most int) func(*rand.Rand) []string {
	return func(r *rand.Rand) []string { return append(delays(r, host), between(r, "kernels", least, most)) }
}

func many(processes, host, most int) func(*rand.Rand) []string {
	return func(r *rand.Rand) []string {
		return append(delays(r, host), between(r, "processes", 2, processes), between(r, "kernels", 1, most))
	}
}

// kinds are all kinds; animals are made of the driver API alone.
var kinds = []kind{
	{name: "driver", from: animal, verb: "plain", often: 3, memory: 1, args: task(100, 4, 16)},
	{name: "host phase", from: animal, verb: "runtime", often: 4, memory: 1, args: task(1000, 4, 16)},
	{name: "streams", from: animal, verb: "streams", often: 2, memory: 1, args: func(r *rand.Rand) []string {
		return append(delays(r, 100), between(r, "streams", 2, 6), between(r, "kernels", 1, 3))
	}},
	{name: "contexts", from: animal, verb: "contexts", often: 2, memory: 4, args: many(3, 100, 4)},
	{name: "churn", from: animal, verb: "churn", often: 2, memory: 4, args: func(r *rand.Rand) []string {
		return append(delays(r, 100), between(r, "processes", 2, 4), between(r, "requests", 10, 40), between(r, "kernels", 1, 4))
	}},
	{name: "fork", from: animal, verb: "forks", often: 2, memory: 4, args: many(4, 200, 3)},
	{name: "spawn", from: animal, verb: "spawns", often: 2, memory: 4, args: many(4, 200, 3)},
	{name: "tasks in a row", from: animal, verb: "row", often: 2, memory: 1, args: many(4, 60, 2)},
	{name: "server", from: animal, verb: "server", often: 3, memory: 1, args: func(r *rand.Rand) []string {
		return append(delays(r, 100), between(r, "requests", 20, 60), between(r, "every", 5, 40), "iters=20000")
	}},
	{name: "exec", from: animal, verb: "execs", often: 2, memory: 2, args: task(200, 1, 4)},
	{name: "signals", from: animal, verb: "signals", often: 2, memory: 1, args: task(400, 4, 12)},
	{name: "stops itself", from: animal, verb: "selfstop", often: 2, stops: true, memory: 1, args: task(100, 1, 4)},
	{name: "crash", from: animal, verb: "segv", often: 1, code: 139, silent: true, memory: 1, args: task(100, 1, 1)},
	{name: "gives up", from: animal, verb: "fails", often: 1, code: 7, memory: 1, args: task(100, 1, 1)},
	{name: "out of memory", from: animal, verb: "memory", often: 1, code: 5, memory: 1, args: task(100, 1, 4)},
	{name: "own libcuda", from: animal, verb: "copies", often: 2, memory: 1, args: task(400, 2, 10)},

	{name: "cuda matmul", from: runtime, verb: "matmul", often: 6, memory: 2, args: func(r *rand.Rand) []string {
		return []string{fmt.Sprintf("n=%d", []int{4096, 6144, 8192}[r.IntN(3)]), between(r, "kernels", 1, 4)}
	}},
	{name: "cuda graph", from: runtime, verb: "graph", often: 2, memory: 1, args: func(r *rand.Rand) []string {
		return []string{between(r, "requests", 100, 600), between(r, "seed", 1, 1<<20)}
	}},
	{name: "cuda pools", from: runtime, verb: "pools", often: 2, memory: 1, args: func(r *rand.Rand) []string {
		return []string{between(r, "requests", 10, 30), between(r, "seed", 1, 1<<20)}
	}},
	{name: "cuda exec", from: runtime, verb: "exec", often: 1, memory: 2, args: func(r *rand.Rand) []string {
		return []string{"n=4096", between(r, "kernels", 1, 3), "requests=100"}
	}},
	{name: "torch eager", from: torch, verb: "eager", often: 5, memory: 4, args: func(r *rand.Rand) []string {
		return []string{between(r, "kernels", 10, 40)}
	}},
	{name: "torch graph", from: torch, verb: "small", often: 4, memory: 4, args: func(r *rand.Rand) []string {
		return []string{between(r, "requests", 50, 300), between(r, "seed", 1, 1<<20)}
	}},
	{name: "torch loader", from: torch, verb: "loader", often: 2, memory: 4, args: func(*rand.Rand) []string { return nil }},
	{name: "torch spawn", from: torch, verb: "spawn", often: 1, memory: 8, args: func(*rand.Rand) []string { return nil }},
}

// kindsFrom are those whose source can be run here.
func kindsFrom(can map[string]bool) (these []kind) {
	for _, k := range kinds {
		if can[k.from] {
			these = append(these, k)
		}
	}
	return these
}
