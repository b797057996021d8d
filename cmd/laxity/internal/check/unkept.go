package check

import (
	"maps"
	"slices"
	"strings"

	"github.com/laxity/laxity/actuator/state"
)

// leftAlone is what helps where labels ask for an order and nobody gives one, by cause.
var leftAlone = map[state.Cause]string{
	state.ByMPS:      "give the container a GPU without an MPS server, or leave it as it is",
	state.ByGang:     "--several-gpus=as-one on the actuator, where channels can be controlled",
	state.ByConflict: "give each container of the gang the same labels: laxity why CONTAINER",
	state.ByMIG:      "see Slices and channels above",
	state.BySeveral:  "--several-gpus=as-one on the actuator, or one GPU for the container (--gpus device=0)",
	state.ByFailure:  "laxity why CONTAINER; it is tried again, and the actuator's log says what failed",
}

// unkept reports what labels ask for and does not hold now: the order of containers that are left as
// they are, limits of GPU memory that are only watched, and shares that add up to too much.
func unkept(out *findings, s state.State) {
	left, unguarded := map[state.Cause][]string{}, map[string][]string{}
	for _, c := range s.Containers {
		if c.LeftAsItIs != "" {
			left[c.LeftAsItIs] = append(left[c.LeftAsItIs], c.Name)
		}
		if c.MemoryUnguarded != "" {
			unguarded[c.MemoryUnguarded] = append(unguarded[c.MemoryUnguarded], c.Name)
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(left)) {
		out.add(Warn, "left as they are ("+string(cause)+")", names(left[cause]), "they run as without Laxity: nothing orders them", leftAlone[cause])
	}
	for _, why := range slices.Sorted(maps.Keys(unguarded)) {
		out.add(Warn, "limit of GPU memory", names(unguarded[why])+": "+why, limitsWatched, "laxity why CONTAINER")
	}
	for _, g := range s.GPUs {
		if g.Unkept != "" {
			out.add(Warn, "shares of "+g.UUID, g.Unkept, "no container there is sure of all that its label says", "smaller shares (laxity share CONTAINER 20%), or a smaller --batch-floor")
		}
	}
}

// names lists the first few containers.
func names(of []string) string {
	const most = 5
	slices.Sort(of)
	if len(of) > most {
		return strings.Join(of[:most], ", ") + ", …"
	}
	return strings.Join(of, ", ")
}
