package experiments

import "slices"

// The parts of the product that experiments measure, as folders of the repository.
var (
	observing = []string{"exporter", "internal/cudabpf", "internal/cudaprobe"}
	scraping  = slices.Concat(observing, []string{"internal/webserver"})
	switching = []string{"internal/rm", "actuator/enforce/channels"}
	deciding  = []string{"actuator/policy", "actuator/profile", "actuator/plan", "actuator/estimate", "actuator/lease", "actuator/arbiter"}
	ordering  = slices.Concat(observing, switching, deciding)
	guarding  = []string{"internal/cudabpf", "internal/cudaprobe", "actuator/allocator", "actuator/enforce/memory"}
	swapping  = slices.Concat(guarding, []string{"actuator/enforce/checkpoint", "actuator/swapping"})
	placing   = []string{"actuator/placement", "rules", "cmd/internal/evaluator"}
	enduring  = []string{"exporter", "actuator", "internal", "rules", "cmd/internal", "cmd/laxity"}
)

// measures are the folders whose code each experiment measures. What is changed there makes
// its stored result one of older code.
var measures = map[string][]string{
	"events": observing, "events-2gpus": observing, "cost": scraping, "growth": scraping, "peers": observing, "pods": scraping, "overhead": observing, "account": observing,
	"chain":         slices.Concat(observing, deciding, []string{"rules", "actuator/webhook", "actuator/intake"}),
	"chain-shipped": slices.Concat(ordering, []string{"rules", "actuator/webhook", "actuator/intake", "actuator/guardian"}),
	"faults":        slices.Concat(ordering, []string{"actuator/guardian", "actuator/journal", "actuator/undo"}),
	"unlabelled":    slices.Concat(ordering, swapping),
	"zoo":           slices.Concat(ordering, swapping, []string{"actuator/guardian", "actuator/journal", "actuator/undo"}),
	"bytes":         {"exporter/collector", "exporter/task", "internal/webserver"},
	"long":          enduring, "long-gpu": enduring,
	"scale": placing, "placements": placing, "quality": placing,
	"policies": deciding, "admission": append([]string{"actuator/admission"}, deciding...),
	"channels": append([]string{"bench/channels"}, switching...), "kills": append([]string{"bench/channels", "actuator/guardian", "actuator/undo"}, switching...), "gang": append([]string{"actuator/plan/gang"}, switching...),
	"guard": guarding, "limits": guarding, "oversubscribe": guarding,
	"deadlock": swapping, "deadlock-2gpus": swapping, "swap": swapping, "swapcycles": swapping,
	"cnns": slices.Concat(ordering, swapping), "fit": guarding, "hidden": {"bench/tenant"},
	"in-pods":   slices.Concat(ordering, guarding, []string{"internal/ctrd", "internal/pod", "exporter/container/containerd", "actuator/enforce/containerd"}),
	"arbitrate": ordering, "mixed": ordering, "contention-19456": ordering, "contention-13312": ordering, "contention-8192": ordering, "contention-inference": ordering,
	"serve": ordering, "serve-scenes": ordering, "serve-streams": ordering, "shares": ordering,
}

// workload is the program that tenants run in these experiments. A result that ran another one says so in
// bench/results/older.txt, in the words of workloadChanged.
var (
	workload    = []string{"internal/workload"}
	runWorkload = []string{
		"arbitrate", "mixed", "contention-19456", "contention-13312", "contention-8192", "contention-inference", "in-pods",
		"chain", "chain-shipped", "cost", "growth", "events", "events-2gpus", "faults", "fit", "gang", "hidden", "long", "long-gpu", "deadlock", "deadlock-2gpus",
		"oversubscribe", "peers", "pods", "swap", "swapcycles", "zoo", "unlabelled",
	}
)

const workloadChanged = "the tenants' program"
