package arbitrate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/laxity/laxity/bench"
)

const aboutMixed = `60 tasks in containers of their own arrive at random on one GPU: of 1 or 10 kernels of 8192²,
each kernel waited for. Together they want 0.8 of the GPU. Each has a deadline of 4 × the time of one
alone + 1 s. Their containers wait until it is time to begin, so that arrivals do not depend on the
engine. Each draw runs by each way in turn: default is time slicing, edf and llf are time slices and
channels in the order of these policies, mps is NVIDIA's MPS. All times are those that the programs stamp
themselves. Makespan is from the first start to the last end; hits are the share of all tasks of all
draws that met their deadlines. ideal is computed: a GPU that always does the work with the earliest
deadline, changes to another at no cost, and knows all else of a task as done before. Where it misses a
deadline, nobody can meet them all: so many tasks come at once.` + aboutFailed

// Mixed is what policies make of tasks that arrive at random. A draw by all ways takes seven minutes.
func Mixed() bench.Experiment {
	return bench.Experiment{
		Name: "mixed", Title: "Sixty tasks with deadlines that arrive at random", About: aboutMixed,
		Settings: []bench.Setting{
			{Name: "ways", Means: "some of default,p3,fifo,edf,llf,mps; default,edf,llf,mps"},
			{Name: "repeats", Means: "draws; 3", Part: true},
			{Name: "limit", Means: "how long after the start another draw may begin; 8m", Part: true},
			{Name: "verbose", Means: "any value: the actuator's log on the standard error", Part: true},
		},
		Portions: true, Run: runMixed, Figures: mixedFigures, Table: mixedTable,
	}
}

func mixedSet() set {
	return set{name: "mixed", counts: []int{60}, due: atRandom, kinds: []kind{
		{name: "small", n: 8192, kernels: 1, host: 0.3, syncEach: true},
		{name: "large", n: 8192, kernels: 10, host: 0.3, syncEach: true},
	}}
}

func runMixed(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	how := defaults(false)
	how.sets, how.ways = []set{mixedSet()}, []string{timeSliced, edf, llf, mps}
	if env.Quick {
		how.repeats, how.sets[0].counts = 1, []int{6}
	}
	how, err := parse(how, env)
	if err != nil {
		return nil, err
	}
	return measureSets(ctx, env, how)
}

func mixedFigures(rows []bench.Row) []bench.Figure {
	all := cells(rows)
	share := func(name, way string) bench.Figure {
		ours := find(all, "mixed", way, 0)
		others := find(all, "mixed", timeSliced, ours.n)
		return bench.Figure{Name: name, Value: 100 * ours.hitShare(), Unit: "%", Against: timeSliced,
			Ratio: ours.hitShare() / others.hitShare(), Runs: ours.n * len(ours.runs)}
	}
	out := []bench.Figure{share("mixed_hit_percent_edf", edf), share("mixed_hit_percent_llf", llf)}
	if v, tasks, runs := idealOf(rows); runs > 0 {
		others := find(all, "mixed", timeSliced, 0)
		out = append(out, bench.Figure{Name: "mixed_hit_percent_ideal", Value: 100 * v, Unit: "%", Against: timeSliced, Ratio: v / others.hitShare(), Runs: tasks})
	}
	return out
}

// mixedTable has a line for each way, and one for the ideal.
func mixedTable(rows []bench.Row) [][]string {
	lines := table(rows)
	if v, tasks, runs := idealOf(rows); runs > 0 {
		lines = append(lines, []string{"mixed", fmt.Sprint(tasks / runs), ideal, "-", "-", "-", fmt.Sprintf("%.1f %%", 100*v), fmt.Sprint(runs), "-"})
	}
	return lines
}

const (
	// load is the share of the GPU that the tasks want.
	load = 0.8
	// leeway and grace make its deadlines: leeway × the time alone + grace seconds.
	leeway, grace = 4, 1
)

// atRandom mixes the kinds in equal shares. They begin at random: at moments
// drawn evenly from the time in which they want the share load of the GPU, which
// is a Poisson process of which the number is known.
func atRandom(s set, n int, r *rand.Rand) []job {
	jobs := make([]job, n)
	moments := make([]float64, n)
	wanted := 0.0
	for i := range jobs {
		k := s.kinds[i%len(s.kinds)]
		jobs[i] = job{kind: k, deadline: leeway*k.alone.took + grace}
		wanted += k.alone.kernels
		moments[i] = r.Float64()
	}
	r.Shuffle(n, func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	slices.Sort(moments)
	for i := range jobs {
		jobs[i].after = moments[i] * wanted / load
	}
	return jobs
}
