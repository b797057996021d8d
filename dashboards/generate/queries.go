package main

import "strings"

// in is a metric, limited to what is chosen: more are further matchers.
func in(metric string, more ...string) string {
	return metric + "{" + strings.Join(append([]string{`node=~"$node"`}, more...), ",") + "}"
}

// Matchers of the variables.
const (
	chosenContainer = `container=~"$container"`
	chosenGPU       = `gpu=~"$gpu"`
)

// quantile of a histogram, native or classic. by are the labels that are kept.
func quantile(q, by, histogram string, matchers ...string) string {
	labels, keep := "le", ""
	if by != "" {
		labels, keep = "le, "+by, " by ("+by+")"
	}
	return "histogram_quantile(" + q + ", sum by (" + labels + ") (rate(" + in(histogram+"_bucket", matchers...) + "[$__rate_interval])))" +
		" or histogram_quantile(" + q + ", sum" + keep + " (rate(" + in(histogram, matchers...) + "[$__rate_interval])))"
}

// quantiles are the median and the 99th percentile.
func quantiles(by, legend, histogram string, matchers ...string) []query {
	return []query{
		{expr: quantile("0.5", by, histogram, matchers...), legend: strings.TrimSpace("median " + legend)},
		{expr: quantile("0.99", by, histogram, matchers...), legend: strings.TrimSpace("p99 " + legend)},
	}
}

// ended is how many tasks with these outcomes ended within a window.
func ended(by, outcomes, window string, matchers ...string) string {
	return "sum" + by + " (increase(" + in("gpu_tasks_completed_total", append(matchers, `outcome=~"`+outcomes+`"`)...) + "[" + window + "]))"
}

// hitRatio is the share of the tasks with a deadline that met it.
func hitRatio(by, window string, matchers ...string) string {
	return ended(by, "hit", window, matchers...) + " / (" + ended(by, "hit|miss", window, matchers...) + " > 0)"
}

// burnRate is how many times as fast as the objective allows deadlines are missed.
func burnRate(window string, matchers ...string) string {
	return "(1 - " + hitRatio("", window, matchers...) + ") / (1 - $objective)"
}

// deadlinePanels are the hit ratio and its burn rate.
func deadlinePanels(by, legend string, matchers ...string) []panel {
	ratio := series("Deadlines hit", "Share of the tasks with a deadline that ended in time, over the last 5 minutes. Nothing is drawn while none ends.",
		"percentunit", query{expr: hitRatio(by, "5m", matchers...), legend: legend}).wide(12).limits(hitsAreGood)
	ratio.more = object{"min": 0, "max": 1}
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
		{"gpu", "GPU", nil}, {"container", "Container", nil}, {"action", "Action", nil}, {"severity", "Severity", nil}, {"Value", "", nil},
	}, query{expr: in("ALERTS", `alertstate="firing"`)})
}

// tasks are the unfinished tasks of each GPU.
func tasks(matchers ...string) string {
	return "sum by (node, gpu) (" + in("gpu_tasks", matchers...) + ")"
}

func waiting(matchers ...string) string {
	return "sum(" + in("gpu_tasks", append(matchers, `state=~"held|paused|swapped"`)...) + ")"
}

func memoryShare(matchers ...string) string {
	return "max by (node, gpu) (" + in("gpu_memory_used_bytes", matchers...) + ") / max by (node, gpu) (" + in("gpu_memory_total_bytes", matchers...) + ")"
}
