package main

// fleet is for whoever asks how all nodes are, and which takes the next container.
func fleet() dashboard {
	return dashboard{
		uid: "laxity-fleet", title: "Laxity / Fleet",
		description: "All nodes: which takes the next container, whether deadlines are met, and where GPUs are contended.",
		variables:   []object{chooseSource(), choose("node", "Node", "laxity_exporter_device_up"), chooseObjective()},
		rows: []row{
			{"", []panel{
				stat("Open nodes", "Nodes with an open GPU: memory is left, it is not fully used by tasks without a deadline, and the facts are fresh.", "none", zeroIsBad,
					query{expr: "sum(" + takes() + ")", legend: "open"}, query{expr: "count(" + in("node:fresh:bool") + ")", legend: "known"}).plain(),
				stat("Unfinished tasks", "Tasks that run or wait, on all of these nodes. Of a container on several GPUs, those on the GPU with the most.", "none", nil, query{expr: unfinished("")}),
				stat("GPUs contended", "GPUs with more than one unfinished task. Tasks whose GPU is not known yet do not count.", "none", anyIsWarning,
					query{expr: "count(max by (node, gpu) (" + in("gpu_unfinished_tasks") + ") > 1) or vector(0)"}),
				stat("Tasks that wait", "Held off the GPU or at an allocation, paused or swapped.", "none", nil, query{expr: waiting("")}),
				hitsNow(),
				stat("Alerts firing", "Of all severities.", "none", anyIsBad, query{expr: "count(" + in("ALERTS", `alertstate="firing"`, `severity!="info"`) + ") or vector(0)"}),
			}},
			{"Nodes", []panel{ranking(), alertsTable()}},
			{"Deadlines", deadlinePanels(" by (node)", "{{node}}")},
			{"GPUs", []panel{
				series("Contention", "Unfinished tasks on each GPU, whatever their state. Above 1 the alert GPUContention fires.", "none",
					ofGPU(tasks(), "")).limits([]object{step(nil, "transparent"), step(2, "orange")}).to("laxity-node", "node", "gpu"),
				series("Utilisation", "Share of the time in which a kernel ran, as the driver says.", "percentunit",
					ofGPU(in("gpu_utilization_ratio"), "")).to("laxity-gpu", "node", "gpu"),
				series("Memory", "Share of the GPU's memory in use. At 95 % the alert GPUMemoryPressure fires.", "percentunit",
					ofGPU(memoryShare(), "")).limits(fullIsBad).to("laxity-gpu", "node", "gpu"),
				series("Float", "What the last tasks of the node's containers had to spare, summed up (float, laxity), which --ranking=paper compares with a new deadline; a node without is not drawn.", "s",
					query{expr: in("node:float:seconds") + " < Inf", legend: "{{node}}"}).wide(12).limits(negativeIsBad).to("laxity-node", "node"),
				series("Work that is due", "Estimated work of unfinished tasks that have a deadline.", "s",
					ofGPU(in("gpu_demand_seconds"), "")).wide(12).to("laxity-node", "node", "gpu"),
			}},
			{"Cards", []panel{
				series("Power", "What the cards of each node draw.", "watt",
					query{expr: "sum by (node) (" + in("gpu_power_watts") + ")", legend: "{{node}}"}).stackedArea().to("laxity-gpu", "node"),
				series("Hottest card", "The highest temperature on each node.", "celsius",
					query{expr: "max by (node) (" + in("gpu_temperature_celsius") + ")", legend: "{{node}}"}).limits(hotArea).to("laxity-gpu", "node"),
				usedTable().wide(8),
			}},
		},
	}
}

// hitsNow is the hit ratio over the time shown.
func hitsNow(matchers ...string) panel {
	p := stat("Deadlines hit", "Share of the tasks with a deadline that ended in time, over the time shown.", "percentunit", hitsAreGood, query{expr: hitRatio("", "$__range", matchers...)})
	p.more["decimals"], p.more["noValue"] = 1, "none ended"
	return p
}

// takes is 1 for each node with an open GPU and fresh facts, else 0.
func takes() string {
	return in("node:fresh:bool") + " * on (node) (max by (node) (" + in("gpu_open") + ") or 0 * " + in("node:fresh:bool") + ")"
}

func ranking() panel {
	open := []object{property("links", []object{link("laxity-node", "${__data.fields.Node}", "node")})}
	bytes, seconds := []object{property("unit", "bytes")}, []object{property("unit", "s")}
	p := table("Node ranking", "The first has the most free memory on an open GPU without work, where the default ranking looks first. laxity nodes ranks for a deadline and a size, and says why not.", []column{
		{"node", "Node", open}, {"Value #A", "Free without work", bytes}, {"Value #B", "Open", yesNo()},
		{"Value #C", "Free on its best GPU", bytes}, {"Value #D", "Float", seconds}, {"Value #E", "Last seen", seconds},
	},
		query{expr: in("node:memory_idle:bytes")}, query{expr: takes()}, query{expr: "max by (node) (" + in("gpu_memory_free_bytes") + ")"},
		query{expr: in("node:float:seconds")}, query{expr: "time() - " + in("node:seen:timestamp_seconds")})
	p.transformations = append(p.transformations, object{"id": "sortBy", "options": object{"sort": []object{{"field": "Free without work", "desc": true}}}})
	return p
}
