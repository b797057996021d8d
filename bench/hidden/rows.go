package hidden

import (
	"fmt"

	"github.com/laxity/laxity/bench"
)

// reached is what a container may reach of GPUs that are not its own.
var reached = []string{"cuda_others", "nvml_others", "files_others", "made_others"}

// hides reports whether a container sees its own GPUs by CUDA, and reaches no other.
func hides(r bench.Row) bool {
	for _, key := range reached {
		if r.Num(key) != 0 {
			return false
		}
	}
	return r.Num("cuda_own") == r.Num("own")
}

// Hidden counts the containers that were given some of the GPUs, and of them those that see no other.
func Hidden(rows []bench.Row) (hidden, all int) {
	for _, r := range rows {
		if r.Num("control") == 1 {
			continue
		}
		all++
		if hides(r) {
			hidden++
		}
	}
	return hidden, all
}

func figures(rows []bench.Row) []bench.Figure {
	n, all := Hidden(rows)
	others := 0.0
	for _, r := range rows {
		for _, key := range reached {
			others += r.Num(key)
		}
	}
	return []bench.Figure{
		{Name: "hidden_containers", Value: float64(n), Unit: fmt.Sprintf("of %d containers", all), Runs: all},
		{Name: "hidden_reached", Value: others, Unit: "GPUs of others", Runs: all},
	}
}

func table(rows []bench.Row) [][]string {
	out := [][]string{{"GIVEN", "GPUs", "CUDA LISTS ITS", "OTHERS", "NVML LISTS ITS", "OTHERS", "FILES OF OTHERS OPEN", "WHEN IT MADE THEM"}}
	for _, r := range rows {
		line := []string{r.Str("given")}
		for _, key := range []string{"gpus", "cuda_own", "cuda_others", "nvml_own", "nvml_others", "files_others", "made_others"} {
			line = append(line, bench.Number(r.Num(key)))
		}
		out = append(out, line)
	}
	return out
}
