package main

// fleet is for whoever asks how all nodes are, and which takes the next container.
func fleet() dashboard {
	return dashboard{
		uid: "laxity-fleet", title: "Laxity / Fleet",
		description: "All nodes: which takes the next container, whether deadlines are met, and where GPUs are contended.",
		variables:   []object{chooseSource(), choose("node", "Node", "laxity_exporter_device_up"), chooseObjective()},
		rows: []row{
			{"", []panel{
				stat("Nodes that take a container", "Provisionable nodes: a GPU with memory left, below full use, no deadline missed within ten minutes, and fresh facts.", "none", zeroIsBad,
					query{expr: "sum(" + in("node:provisionable:bool") + ")", legend: "provisionable"}, query{expr: "count(" + in("node:provisionable:bool") + ")", legend: "known"}),
				stat("Unfinished tasks", "Tasks that run or wait, on all of these nodes.", "none", nil, query{expr: "sum(" + in("gpu_tasks") + ")"}),
				stat("GPUs contended", "GPUs with more than one unfinished task.", "none", anyIsWarning, query{expr: "count(" + tasks() + " > 1) or vector(0)"}),
				stat("Tasks that wait", "Held off the GPU or at an allocation, paused or swapped.", "none", nil, query{expr: waiting()}),
				hitsNow(),
				stat("Alerts firing", "Of all severities.", "none", anyIsBad, query{expr: "count(" + in("ALERTS", `alertstate="firing"`, `severity!="info"`) + ") or vector(0)"}),
			}},
			{"Nodes", []panel{ranking(), alertsTable()}},
			{"Deadlines", deadlinePanels(" by (node)", "{{node}}")},
			{"GPUs", []panel{
				series("Contention", "Unfinished tasks on each GPU, whatever their state. Above 1 the alert GPUContention fires.", "none",
					query{expr: tasks(), legend: "{{node}} {{gpu}}"}).limits([]object{step(nil, "transparent"), step(2, "orange")}).to("laxity-node", "node", "gpu"),
				series("Utilisation", "Share of the time in which a kernel ran, as the driver says.", "percentunit",
					query{expr: in("node_gpu:utilization:ratio"), legend: "{{node}} {{gpu}}"}).to("laxity-node", "node", "gpu"),
				series("Memory", "Share of the GPU's memory in use. At 95 % the alert GPUMemoryPressure fires.", "percentunit",
					query{expr: memoryShare(), legend: "{{node}} {{gpu}}"}).limits(fullIsBad).to("laxity-node", "node", "gpu"),
				series("Float", "Time to spare, summed over the containers of the node (float, laxity, slack). A container with a later deadline than this can go there; a node without deadlines is not drawn.", "s",
					query{expr: in("node:float:seconds") + " < Inf", legend: "{{node}}"}).wide(12).limits(negativeIsBad).to("laxity-node", "node"),
				series("Work that is due", "Estimated work of unfinished tasks that have a deadline.", "s",
					query{expr: in("node_gpu:demand:seconds"), legend: "{{node}} {{gpu}}"}).wide(12).to("laxity-node", "node", "gpu"),
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

func ranking() panel {
	open := []object{property("links", []object{link("laxity-node", "${__data.fields.Node}", "node")})}
	bytes, seconds := []object{property("unit", "bytes")}, []object{property("unit", "s")}
	p := table("Node ranking", "The first is the node for the next container (most free GPU memory among the provisionable). A score of 0 is no candidate; laxity nodes says why.", []column{
		{"node", "Node", open}, {"Value #A", "Score", bytes}, {"Value #B", "Provisionable", yesNo()},
		{"Value #C", "Free on its best GPU", bytes}, {"Value #D", "Float", seconds}, {"Value #E", "Last seen", seconds},
	},
		query{expr: in("node:rank:score")}, query{expr: in("node:provisionable:bool")}, query{expr: in("node:memory_free:bytes")},
		query{expr: in("node:float:seconds")}, query{expr: "time() - " + in("node:seen:timestamp_seconds")})
	p.transformations = append(p.transformations, object{"id": "sortBy", "options": object{"sort": []object{{"field": "Score", "desc": true}}}})
	return p
}
