package memory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/laxity/laxity/bench"
	benchrig "github.com/laxity/laxity/bench/rig"
)

// static is the card in equal parts, as many as the largest task fits into.
const static = "static"

// job is one task: the memory that it holds besides its context, in bytes, and its kernels.
type job struct {
	memory  uint64
	kernels int
}

// taskSet is what runs at once. Its tasks come in this order, by every way.
type taskSet struct {
	name string
	jobs []job
}

// taskSets are P4's homogeneous and heterogeneous sets; both want 120 GiB and 96 kernels.
var taskSets = []taskSet{
	{"equal", slices.Repeat([]job{{10 << 30, 8}}, 12)},
	{"unequal", slices.Repeat([]job{{5 << 30, 4}, {15 << 30, 12}, {10 << 30, 8}}, 4)},
}

// setsOf returns the sets that are asked for.
func setsOf(env bench.Env) (out []taskSet, err error) {
	text, ok := env.Args["sets"]
	if !ok {
		return taskSets[:1], nil
	}
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(taskSets, func(s taskSet) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--set sets=%s: write equal, unequal or both, with a comma", text)
		}
		out = append(out, taskSets[i])
	}
	return out, nil
}

// atOnce is how many tasks of the set a way starts beside each other.
func (s taskSet) atOnce(way string) int {
	switch way {
	case oneByOne:
		return 1
	case static:
		var most uint64
		for _, j := range s.jobs {
			most = max(most, j.memory)
		}
		return int(leftFree / (most + benchrig.ContextMost))
	default:
		return len(s.jobs)
	}
}
