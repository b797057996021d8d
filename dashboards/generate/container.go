package main

// container is for whoever asks whether a container's tasks meet their deadlines,
// and if not, why.
func container() dashboard {
	c := chosenContainer
	by := func(how, metric string) string { return how + " by (node, container) (" + in(metric, c) + ")" }
	return dashboard{
		uid: "laxity-container", title: "Laxity / Container",
		description: "The GPU tasks of containers: when they ran and waited, how much time they had to spare, and what they used.",
		variables: []object{
			chooseSource(), choose("node", "Node", "laxity_exporter_device_up"), choose("container", "Container", `gpu_tasks{node=~"$node"}`), chooseObjective(),
		},
		rows: []row{
			{"", []panel{
				stat("Float now", "Time that the most urgent unfinished task has to spare (float, laxity).", "s", negativeIsRed, query{expr: "min(" + in("gpu_task_float_seconds", c) + ")"}),
				stat("Deadline", "Of each task, from its start. The least of the chosen containers.", "s", nil, query{expr: "min(" + in("gpu_container_deadline_seconds", c) + ")"}),
				hitsNow(c),
				stat("Last task's float", "Time that the latest ended task had to spare when it ended; the least of the chosen containers.", "s", negativeIsRed, query{expr: "min(" + in("gpu_task_last_float_seconds", c) + ")"}),
				stat("Tasks that wait", "Held off the GPU or at an allocation, paused or swapped.", "none", nil, query{expr: waiting("", c)}),
				stat("GPU memory", "What all processes of the chosen containers hold.", "bytes", nil, query{expr: "sum(" + in("gpu_container_memory_used_bytes", c) + ")"}),
			}},
			{"Tasks", []panel{
				taskTimeline("", c),
				heldTimeline(c),
				series("Float against deadline", "How much of the deadline is left: 100 % at the start of a task, 0 % at its deadline, less when it is missed.", "percentunit",
					query{expr: "min by (node, container) (" + in("gpu_task_float_seconds", c) + " / on (node, container) group_left " + by("max", "gpu_container_deadline_seconds") + ")", legend: "{{node}} {{container}}"}).wide(12).below().limits(negativeIsBad),
				series("Last task's duration and deadline", "From start to end, waiting included, beside the time that it had.", "s",
					query{expr: "max by (node, container) (" + in("gpu_task_last_end_timestamp_seconds", c) + " - " + in("gpu_task_last_start_timestamp_seconds", c) + ")", legend: "{{container}} duration"},
					query{expr: by("max", "gpu_container_deadline_seconds"), legend: "{{container}} deadline"}).wide(12),
			}},
			{"Deadlines", append(deadlinePanels(" by (node, container)", "{{container}}", c),
				series("Tasks ended", "By outcome; none had no deadline, lost is an end that was not seen.", "none",
					query{expr: ended(" by (outcome)", "$__rate_interval", c), legend: "{{outcome}}"}).stacked(),
				series("Float of ended tasks", "Time that the latest ended task had to spare.", "s", query{expr: by("min", "gpu_task_last_float_seconds"), legend: "{{container}}"}).limits(negativeIsBad),
				series("Tardiness", "How late tasks with a deadline ended; 0 for those in time.", "s", quantiles("", "", "gpu_task_tardiness_seconds", c)...),
			)},
			{"Where the time went", []panel{
				series("Duration of tasks", "From start to end, waiting included.", "s", quantiles("", "", "gpu_task_duration_seconds", c)...),
				series("Held time", "How long ended tasks had been held or paused.", "s", quantiles("", "", "gpu_task_held_seconds", c)...),
				series("Waiting tasks", "Tasks held, paused or swapped now.", "none",
					query{expr: waiting(" by (state)", c), legend: "{{state}}"}).stacked(),
			}},
			{"In the queue", []panel{
				places(c).wide(12), sliceSeries(c).wide(12),
			}},
			{"Use of the GPU", useOfGPU(c, by)},
			{"GPU memory, where it is guarded", []panel{
				series("Held and entitled to", "What the container holds, its share, and its own limit (laxity.gpu-memory).", "bytes",
					query{expr: by("sum", "laxity_actuator_memory_held_bytes"), legend: "{{container}} holds"},
					query{expr: by("sum", "laxity_actuator_memory_share_bytes"), legend: "{{container}} share"},
					query{expr: by("sum", "laxity_actuator_memory_limit_bytes"), legend: "{{container}} limit"}),
				series("Allocations that wait", "How long the oldest one has waited, and how long ago one was refused.", "s",
					query{expr: by("max", "laxity_actuator_memory_waiting_seconds"), legend: "{{container}} waits"},
					query{expr: "time() - " + by("max", "laxity_actuator_memory_denied_timestamp_seconds"), legend: "{{container}} refused"}).none("none waits, none was refused"),
				series("Swapped out", "Memory of containers that are off their GPUs.", "bytes", query{expr: by("sum", "laxity_actuator_memory_swapped_bytes"), legend: "{{container}}"}).none("nobody is swapped out"),
			}},
		},
	}
}

// useOfGPU is what containers had of GPUs.
func useOfGPU(c string, by func(how, metric string) string) []panel {
	return []panel{
		series("Time", "Share of the time in which the container's work was on each GPU.", "percentunit",
			query{expr: named("sum by (node, gpu, container) (rate(" + in("gpu_container_gpu_seconds_total", c) + "[" + smooth + "]))"), legend: "{{container}} on {{index}} {{name}}"}).to("laxity-gpu", "node", "gpu"),
		series("Power", "What its work draws beyond the card's idle power.", "watt",
			query{expr: "sum by (node, container) (rate(" + in("gpu_container_energy_joules_total", c) + "[" + smooth + "]))", legend: "{{container}}"}),
		usedTable(c).wide(8),
		series("Memory", "What all processes of the container hold, contexts included.", "bytes", query{expr: by("sum", "gpu_container_memory_used_bytes"), legend: "{{container}}"}),
		series("Multiprocessor time", "Share of the multiprocessors' time, over a minute.", "percentunit", query{expr: "sum by (node, container) (avg_over_time(" + in("gpu_container_sm_utilization_ratio", c) + "[" + smooth + "]))", legend: "{{container}}"}),
		table("Containers", "What they are.", []column{
			{"node", "Node", nil}, {"container", "Container", nil}, {"image", "Image", nil}, {"class", "Class", nil}, {"id", "", nil}, {"Value", "", nil},
		}, query{expr: in("gpu_container_info", c)}).wide(8),
	}
}
