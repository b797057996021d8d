// Package experiments lists every experiment, for the CLI and for the test that
// computes the stored figures again.
package experiments

import (
	"slices"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/account"
	"github.com/laxity/laxity/bench/admission"
	"github.com/laxity/laxity/bench/arbitrate"
	"github.com/laxity/laxity/bench/chain"
	"github.com/laxity/laxity/bench/channels"
	"github.com/laxity/laxity/bench/cnns"
	"github.com/laxity/laxity/bench/cost"
	"github.com/laxity/laxity/bench/events"
	"github.com/laxity/laxity/bench/faults"
	"github.com/laxity/laxity/bench/fit"
	"github.com/laxity/laxity/bench/gang"
	"github.com/laxity/laxity/bench/guard"
	"github.com/laxity/laxity/bench/hidden"
	"github.com/laxity/laxity/bench/inpods"
	"github.com/laxity/laxity/bench/long"
	"github.com/laxity/laxity/bench/memory"
	"github.com/laxity/laxity/bench/overhead"
	"github.com/laxity/laxity/bench/peers"
	"github.com/laxity/laxity/bench/placement"
	"github.com/laxity/laxity/bench/policies"
	"github.com/laxity/laxity/bench/scale"
	"github.com/laxity/laxity/bench/serve"
	"github.com/laxity/laxity/bench/shares"
	"github.com/laxity/laxity/bench/swap"
	"github.com/laxity/laxity/bench/zoo"
)

// All returns every experiment, in the order in which documents show them.
func All() []bench.Experiment {
	return slices.Concat([]bench.Experiment{
		events.Experiment(), events.OnTwoGPUs(), chain.Experiment(), chain.Shipped(), faults.Experiment(), zoo.Experiment(), zoo.Unlabelled(),
		cost.Experiment(), cost.Growth(), cost.Pods(), peers.Experiment(), long.Experiment(), long.OnGPU(),
		overhead.Experiment(), account.Experiment(), scale.Experiment(), scale.Bytes(), policies.Experiment(), admission.Experiment(),
		channels.Experiment(), channels.Kills(), gang.Experiment(), guard.Experiment(), guard.Limits(),
		arbitrate.Experiment(), arbitrate.Mixed(),
	}, arbitrate.Papers(), []bench.Experiment{
		serve.Experiment(), serve.Scenes(), serve.Streams(), shares.Experiment(),
		placement.Placements(), placement.Quality(), swap.Experiment(), swap.Cycles(),
		memory.Deadlock(), memory.Ring(), memory.Oversubscribe(), cnns.Experiment(), fit.Experiment(), hidden.Experiment(), inpods.Experiment(),
	})
}

// Names returns their names.
func Names() []string {
	var names []string
	for _, e := range All() {
		names = append(names, e.Name)
	}
	return names
}

// Find returns the experiment with this name.
func Find(name string) (bench.Experiment, bool) {
	all := All()
	i := slices.IndexFunc(all, func(e bench.Experiment) bool { return e.Name == name })
	if i < 0 {
		return bench.Experiment{}, false
	}
	return all[i], true
}
