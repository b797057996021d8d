package main

// node is for whoever asks what happens on a machine's GPUs.
func node() dashboard {
	gpu := chosenGPU
	perGPU := func(title, description, unit, metric string) panel {
		return series(title, description, unit, ofGPU(in(metric, gpu), ""))
	}
	return dashboard{
		uid: "laxity-node", title: "Laxity / Node",
		description: "The GPUs of a node: whose tasks run and wait, what they use, and whether the exporter sees all of it.",
		variables:   []object{chooseSource(), choose("node", "Node", "laxity_exporter_device_up"), chooseGPU()},
		rows: []row{
			{"", []panel{
				stat("Takes a container", "1: one of its GPUs is open. laxity nodes says why not.", "bool_yes_no", zeroIsBad, query{expr: takes(), legend: "{{node}}"}),
				stat("GPUs", "GPUs and MIG instances.", "none", nil, query{expr: "count(" + in("gpu_info", gpu) + ")"}),
				stat("Unfinished tasks", "Tasks that run or wait. Of a container on several GPUs, those on the GPU with the most.", "none", nil, query{expr: unfinished("", gpu)}),
				stat("Tasks that wait", "Held off the GPU or at an allocation, paused or swapped.", "none", nil, query{expr: waiting("", gpu)}),
				hitsNow(gpu),
				stat("Free memory", "Of all its GPUs.", "bytes", nil, query{expr: "sum(" + in("gpu_memory_free_bytes", gpu) + ")"}),
			}},
			{"Tasks", []panel{
				taskTimeline("laxity-container", gpu),
				heldTimeline(),
				series("Float of unfinished tasks", "Time to spare before the deadline (float, laxity). Below 0 it is missed.", "s",
					query{expr: "min by (node, container) (" + in("gpu_task_float_seconds", gpu) + ")", legend: "{{container}}"}).wide(12).limits(negativeIsBad).to("laxity-container", "node", "container"),
				series("Tasks ended", "By outcome; none had no deadline, lost is an end that was not seen.", "none",
					query{expr: ended(" by (outcome)", "$__rate_interval", gpu), legend: "{{outcome}}"}).wide(12).stacked(),
				places(gpu).wide(12),
				sliceSeries().wide(12),
			}},
			{"GPUs", []panel{
				series("Contention", "Unfinished tasks on each GPU, whatever their state.", "none", ofGPU(tasks(gpu), "")).limits([]object{step(nil, "transparent"), step(2, "orange")}),
				fraction(perGPU("Utilisation", "Share of the time in which a kernel ran, as the driver says.", "percentunit", "gpu_utilization_ratio")).to("laxity-gpu", "node", "gpu"),
				series("Memory", "Share of the GPU's memory in use.", "percentunit", ofGPU(memoryShare(gpu), "")).limits(fullIsBad),
				series("Memory by container", "What all processes of a container hold, contexts included.", "bytes",
					query{expr: "sum by (node, container) (" + in("gpu_container_memory_used_bytes", gpu) + ")", legend: "{{container}}"}).to("laxity-container", "node", "container"),
				series("Multiprocessor time by container", "Share of the multiprocessors' time, over a minute.", "percentunit",
					query{expr: "sum by (node, container) (avg_over_time(" + in("gpu_container_sm_utilization_ratio", gpu) + "[" + smooth + "]))", legend: "{{container}}"}).to("laxity-container", "node", "container"),
				perGPU("Work that is due", "Estimated work of unfinished tasks that have a deadline.", "s", "gpu_demand_seconds"),
			}},
			{"Exporter", []panel{
				series("Answers", "1: the GPU driver, and the container engine, answer the exporter.", "none",
					query{expr: "min by (node) (" + in("laxity_exporter_device_up") + ")", legend: "{{node}} driver"},
					query{expr: "min by (node) (" + in("laxity_exporter_engine_up") + ")", legend: "{{node}} engine"}).wide(6),
				series("Age of the facts", "Time since the driver last confirmed what the exporter shows.", "s",
					query{expr: "max by (node) (" + in("laxity_exporter_snapshot_age_seconds") + ")", legend: "{{node}}"}).wide(6),
				table("How starts are learned", "uprobe is exact; fanotify sees the driver being opened; device polls the GPU's list.", []column{
					{"node", "Node", nil}, {"sensor", "Sensor", nil}, {"Value", "", nil},
				}, query{expr: "max by (node, sensor) (" + in("laxity_exporter_sensor_in_use") + " == 1)"}).wide(6),
				series("Not read, not shown", "Labels that cannot be read, and series left out of scrapes.", "none",
					query{expr: "sum(" + in("laxity_exporter_invalid_labels") + ") or vector(0)", legend: "invalid labels"},
					query{expr: "sum by (node) (increase(" + in("laxity_exporter_series_dropped_total") + "[$__rate_interval]))", legend: "{{node}} series dropped"}).wide(6),
			}},
		},
	}
}
