package main

import (
	"slices"
	"strings"
)

// in is a metric, limited to what is chosen: more are further matchers.
func in(metric string, more ...string) string {
	return metric + "{" + strings.Join(append([]string{`node=~"$node"`}, more...), ",") + "}"
}

// Matchers of the variables.
const (
	chosenContainer = `container=~"$container"`
	chosenGPU       = `gpu=~"$gpu"`
)

// gpuNames are what people call the GPUs: index and model, also of a card that is cut into
// MIG instances, whose condition is its own.
const gpuNames = `max by (node, gpu, index, name) (gpu_info{node=~"$node"} or gpu_mig_card_info{node=~"$node"})`

// named adds index and model to each series of a GPU, so that no legend has to show a UUID.
func named(expr string) string {
	return "(" + expr + ") * on (node, gpu) group_left (index, name) " + gpuNames
}

// ofGPU is a query by GPU; more is what its legend says besides the GPU.
func ofGPU(expr, more string) query {
	return query{expr: named(expr), legend: strings.TrimSpace("{{node}} {{index}} {{name}} " + more)}
}

// quantile of a histogram, classic or native. by are the labels that are kept. Without an
// observation a quantile is NaN: that is no answer.
func quantile(q, by, histogram string, matchers ...string) string {
	labels, keep := "le", ""
	if by != "" {
		labels, keep = "le, "+by, " by ("+by+")"
	}
	return "histogram_quantile(" + q + ", sum by (" + labels + ") (rate(" + in(histogram+"_bucket", matchers...) + "[$__rate_interval]))) >= 0" +
		" or histogram_quantile(" + q + ", sum" + keep + " (rate(" + in(histogram, matchers...) + "[$__rate_interval]))) >= 0"
}

// quantiles are the median and the 99th percentile.
func quantiles(by, legend, histogram string, matchers ...string) []query {
	return []query{
		{expr: quantile("0.5", by, histogram, matchers...), legend: strings.TrimSpace("median " + legend)},
		{expr: quantile("0.99", by, histogram, matchers...), legend: strings.TrimSpace("p99 " + legend)},
	}
}

// sumOnce sums what is counted by container, state or outcome, and GPU. A task on several GPUs is in
// the count of each: of a container the GPU with the most counts.
func sumOnce(by, label, expr string) string {
	return "sum" + by + " (max by (node, container, " + label + ") (" + expr + "))"
}

// unfinished is how many tasks there are.
func unfinished(by string, matchers ...string) string {
	return sumOnce(by, "state", in("gpu_tasks", matchers...))
}

// ended is how many tasks ended within a window.
func ended(by, window string, matchers ...string) string {
	return sumOnce(by, "outcome", "increase("+in("gpu_tasks_completed_total", matchers...)+"["+window+"])")
}

// hitRatio is the share of the tasks with a deadline that met it.
func hitRatio(by, window string, matchers ...string) string {
	hit, all := append(slices.Clone(matchers), `outcome="hit"`), append(slices.Clone(matchers), `outcome=~"hit|miss"`)
	return ended(by, window, hit...) + " / (" + ended(by, window, all...) + " > 0)"
}

// burnRate is how many times as fast as the objective allows deadlines are missed.
func burnRate(window string, matchers ...string) string {
	return "(1 - " + hitRatio("", window, matchers...) + ") / (1 - $objective)"
}

// deadlinePanels are the hit ratio and its burn rate.
func deadlinePanels(by, legend string, matchers ...string) []panel {
	ratio := series("Deadlines hit", "Share of the tasks with a deadline that ended in time, over the last 5 minutes. Nothing is drawn while none ends.",
		"percentunit", query{expr: hitRatio(by, "5m", matchers...), legend: legend}).wide(12).limits(hitsAreGood)
	ratio.more["max"], ratio.custom["thresholdsStyle"] = 1, object{"mode": "line"}
	burn := series("Burn rate of the objective",
		"How many times as fast as the objective allows deadlines are missed: at 1 the allowance is just used up. Two windows agree when it is neither over nor a moment's.",
		"none", query{expr: burnRate("5m", matchers...), legend: "5 minutes"}, query{expr: burnRate("1h", matchers...), legend: "1 hour"}).wide(12).limits(burning)
	return []panel{ratio, burn}
}

// states are the states of unfinished tasks, with the number that stands for each
// in a time line.
var states = []string{"running", "held", "paused", "swapped"}

// taskTimeline shows what the unfinished tasks of each container do.
func taskTimeline(link string, matchers ...string) panel {
	colors := map[string]string{"running": "green", "held": "yellow", "paused": "blue", "swapped": "purple"}
	mappings, each := object{}, []string{}
	for i, s := range states {
		n := string(rune('1' + i))
		mappings[n] = object{"text": s, "color": colors[s], "index": i}
		each = append(each, "("+in("gpu_tasks", append(matchers, `state="`+s+`"`)...)+" > 0) * 0 + "+n)
	}
	p := timeline("Tasks", "What each container's unfinished tasks do. Where several are in different states, the one that stands still is shown.",
		mappings, query{expr: "max by (node, container) (" + strings.Join(each, " or ") + ")", legend: "{{node}} {{container}}"})
	if link != "" {
		p = p.to(link, "node", "container")
	}
	return p
}

// alertsTable is what fires now.
func alertsTable() panel {
	return table("Alerts", "What fires now. Those with an action went to the actuator.", []column{
		{"alertname", "Alert", nil}, {"node", "Node", []object{property("links", []object{link("laxity-node", "${__data.fields.Node}", "node")})}},
		{"index", "GPU", nil}, {"name", "Model", nil}, {"gpu", "", nil}, {"container", "Container", nil}, {"action", "Action", nil}, {"severity", "Severity", nil}, {"Value", "", nil},
	}, query{expr: named(in("ALERTS", `alertstate="firing"`)) + " or on (alertname, node, gpu, container) " + in("ALERTS", `alertstate="firing"`)})
}

// tasks are the unfinished tasks of each GPU.
func tasks(matchers ...string) string {
	return "sum by (node, gpu) (" + in("gpu_tasks", matchers...) + ")"
}

func waiting(by string, matchers ...string) string {
	return unfinished(by, append(matchers, `state=~"held|paused|swapped"`)...)
}

func memoryShare(matchers ...string) string {
	return "max by (node, gpu) (" + in("gpu_memory_used_bytes", matchers...) + ") / max by (node, gpu) (" + in("gpu_memory_total_bytes", matchers...) + ")"
}

// smooth is the window of rates of what goes up and down within seconds, as turns on a GPU do: a
// line can be read then, and so can an area.
const smooth = "1m"

// timeShare is how much of each GPU's time containers had.
func timeShare(matchers ...string) []query {
	return []query{
		{expr: "sum by (node, container) (rate(" + in("gpu_container_gpu_seconds_total", matchers...) + "[" + smooth + "]))", legend: "{{container}}"},
		{expr: "sum(rate(" + in("gpu_other_gpu_seconds_total", matchers...) + "[" + smooth + "]))", legend: "outside of containers"},
	}
}

// watts is what each container, and who is none, draws.
func watts(matchers ...string) []query {
	return []query{
		{expr: "sum by (node, container) (rate(" + in("gpu_container_energy_joules_total", matchers...) + "[" + smooth + "]))", legend: "{{container}}"},
		{expr: "sum by (reason) (rate(" + in("gpu_unattributed_energy_joules_total", matchers...) + "[" + smooth + "]))", legend: "{{reason}}"},
	}
}

// usedTable is what containers had of GPUs over the time shown.
func usedTable(matchers ...string) panel {
	over := func(metric string) query {
		return query{expr: "sum by (node, container) (increase(" + in(metric, matchers...) + "[$__range]))"}
	}
	p := table("What containers had", "GPU-seconds, and energy beyond the card's idle power, over the time shown.", []column{
		{"node", "Node", nil}, {"container", "Container", []object{property("links", []object{link("laxity-container", "${__data.fields.Container}", "container")})}},
		{"Value #A", "GPU time", []object{property("unit", "s")}}, {"Value #B", "Energy", []object{property("unit", "joule")}},
	}, over("gpu_container_gpu_seconds_total"), over("gpu_container_energy_joules_total"))
	p.transformations = append(p.transformations, object{"id": "sortBy", "options": object{"sort": []object{{"field": "GPU time", "desc": true}}}})
	return p
}

// causes are why a container is held, as laxity_actuator_container_held has them.
var causes = []string{"arbitrate", "relieve", "pause", "memory"}

// heldTimeline says who was held, and why.
func heldTimeline(matchers ...string) panel {
	words := map[string][2]string{"arbitrate": {"another one's turn", "yellow"}, "relieve": {"GPU memory nearly full", "orange"},
		"pause": {"somebody asked for it", "blue"}, "memory": {"GPU memory", "purple"}}
	mappings, each := object{}, []string{}
	for i, cause := range causes {
		n := string(rune('1' + i))
		mappings[n] = object{"text": words[cause][0], "color": words[cause][1], "index": i}
		each = append(each, "max by (node, container) ("+in("laxity_actuator_container_held", append(matchers, `cause="`+cause+`"`)...)+") * "+n)
	}
	return timeline("Who is held, and why", "Off the GPU, or paused, by the actuator. laxity why says more.", mappings,
		query{expr: strings.Join(each, " or "), legend: "{{node}} {{container}}"}).tall(6).none("nobody is held")
}

// places is where containers stand on a GPU.
func places(matchers ...string) panel {
	p := series("Queue", "Where each container stands on its GPU: 1 comes first. Nothing is drawn while nobody shares it.", "none",
		query{expr: named("min by (node, gpu, container) (" + in("laxity_actuator_queue_place", matchers...) + ")"), legend: "{{container}} on {{index}}"})
	p.custom["lineInterpolation"] = "stepAfter"
	p.more["min"], p.more["decimals"] = 1, 0
	return p.none("nobody shares a GPU")
}

// sliceSeries is what slices the actuator gave.
func sliceSeries(matchers ...string) panel {
	return series("Time slices", "How long the GPU computes for a container before the next one's turn, where the actuator has set it.", "s",
		query{expr: "max by (node, container) (" + in("laxity_actuator_slice_seconds", matchers...) + ")", legend: "{{container}}"}).logarithmic().none("nobody has a slice of ours")
}
