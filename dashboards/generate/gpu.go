package main

// gpu is for whoever looks after the cards: how each is, and who uses it for what.
func gpu() dashboard {
	gpu := chosenGPU
	of := func(title, description, unit, metric string) panel {
		return series(title, description, unit, ofGPU(in(metric, gpu), ""))
	}
	by := func(title, description, unit, expr, label string) panel {
		return series(title, description, unit, ofGPU(expr, "{{"+label+"}}"))
	}
	rate := func(metric string) string { return "rate(" + in(metric, gpu) + "[$__rate_interval])" }
	power := of("Power", "What each card draws, and what it may.", "watt", "gpu_power_watts")
	power.queries = append(power.queries, ofGPU(in("gpu_power_limit_watts", gpu), "limit"))
	return dashboard{
		uid: "laxity-gpu", title: "Laxity / GPU",
		description: "The cards: temperature, power, clocks, memory, errors; and what only Laxity knows: whose work it was, who waits, and what for.",
		variables:   []object{chooseSource(), choose("node", "Node", "laxity_exporter_device_up"), chooseGPU()},
		rows: []row{
			{"", []panel{
				stat("GPU utilisation", "Mean share of the time in which a kernel ran.", "percentunit", nil, query{expr: "avg(" + in("gpu_utilization_ratio", gpu) + ")"}),
				stat("Power", "Of all these cards.", "watt", nil, query{expr: "sum(" + in("gpu_power_watts", gpu) + ")"}),
				stat("Hottest", "The highest temperature of these cards, memory included.", "celsius", hot, query{expr: "max(" + in("gpu_temperature_celsius", gpu) + ")"}),
				stat("Memory in use", "Framebuffer of all these GPUs.", "bytes", nil, query{expr: "sum(" + in("gpu_memory_used_bytes", gpu) + ")"}),
				stat("Throttled", "Cards whose clocks are lowered now: for heat, power, or by the hardware.", "none", anyIsWarning, query{expr: "count(max by (node, gpu) (" + in("gpu_throttled", gpu) + ") > 0) or vector(0)"}),
				stat("Errors", "Xid errors since the exporter began, and memory errors that ECC could not correct over the time shown.", "none", anyIsBad,
					query{expr: "(sum(" + in("gpu_xid_errors_total", gpu) + ") or vector(0)) + (sum(increase(" + in("gpu_ecc_errors_total", `kind="uncorrected"`, gpu) + "[$__range])) or vector(0))"}),
			}},
			{"Whose work", []panel{
				series("Time by container", "In which each container's work was on these GPUs: 100 % is one GPU's time. Over a minute.", "percentunit", timeShare(gpu)...).stackedArea(),
				series("Power by container", "What each container's work draws beyond the cards' idle power, and what is nobody's.", "watt", watts(gpu)...).stackedArea(),
				usedTable(gpu).wide(8),
				taskTimeline("laxity-container", gpu).tall(7),
				series("Float of unfinished tasks", "Time to spare before the deadline (float, laxity). Below 0 it is missed.", "s",
					query{expr: "min by (node, container) (" + in("gpu_task_float_seconds", gpu) + ")", legend: "{{container}}"}).limits(negativeIsBad).to("laxity-container", "node", "container"),
				places(gpu),
				series("Memory by container", "What all processes of a container hold, contexts included.", "bytes",
					query{expr: "sum by (node, container) (" + in("gpu_container_memory_used_bytes", gpu) + ")", legend: "{{container}}"}).stackedArea(),
			}},
			{"Cards", []panel{
				by("Temperature", "By place: the chip, and its memory.", "celsius", in("gpu_temperature_celsius", gpu), "sensor").limits(hotArea),
				power,
				by("Clocks", "Of the multiprocessors (sm) and of the memory.", "hertz", in("gpu_clock_hertz", gpu), "clock"),
				fraction(of("Utilisation", "Share of the time in which a kernel ran, as the driver says.", "percentunit", "gpu_utilization_ratio")),
				of("Context switches", "How often the card goes over to another process's work, by the driver's trace of context switches. Each costs up to half a millisecond.", "ops", "gpu_context_switches_per_second").none("no trace"),
				of("Framebuffer memory", "In use.", "bytes", "gpu_memory_used_bytes"),
				series("Energy", "Since the driver was loaded.", "joule", ofGPU(in("gpu_energy_joules_total", gpu), "")),
				by("PCIe", "What the card sends (transmit) and gets (receive).", "Bps", in("gpu_pcie_throughput_bytes_per_second", gpu), "direction"),
				by("NVLink", "What the card sends (transmit) and gets (receive) over all links, where it has any.", "Bps", rate("gpu_nvlink_bytes_total"), "direction").none("no NVLink"),
				by("Memory errors", "Over the card's life, by kind. What ECC corrected is harmless; what it could not is not.", "none", in("gpu_ecc_errors_total", gpu), "kind").whole(),
				throttleTimeline(gpu).wide(12).tall(6),
				table("Xid errors", "What the driver reported since the exporter began. NVIDIA's documentation explains the numbers.", []column{
					{"node", "Node", nil}, {"index", "GPU", nil}, {"name", "Model", nil}, {"xid", "Xid", nil}, {"gpu", "", nil}, {"Value", "Times", nil},
				}, query{expr: named(in("gpu_xid_errors_total", gpu))}).wide(12).tall(6).none("none"),
			}},
		},
	}
}

// Temperatures at which data-centre cards begin to slow down, roughly; each knows its own.
var (
	hot     = []object{step(nil, "green"), step(80, "orange"), step(90, "red")}
	hotArea = []object{step(nil, "transparent"), step(90, "red")}
)

func throttleTimeline(matchers ...string) panel {
	// Of several the first is shown: heat before the power cap, "hardware" after what it can be.
	reasons := []string{"hardware_thermal", "hardware_power_brake", "hardware", "thermal", "power_cap", "sync_boost"}
	colors := []string{"red", "orange", "orange", "red", "yellow", "blue"}
	mappings, expr := object{"0": object{"text": "no", "color": "transparent", "index": 0}}, ""
	for i, r := range reasons {
		n := string(rune('1' + i))
		mappings[n] = object{"text": r, "color": colors[i], "index": i + 1}
		expr += "(max by (node, gpu) (" + in("gpu_throttled", append(matchers, `reason="`+r+`"`)...) + ") > 0) * " + n + " or "
	}
	expr += "0 * max by (node, gpu) (" + in("gpu_throttled", matchers...) + ")"
	return timeline("Throttled", "When a card's clocks were lowered, and why.", mappings, ofGPU(expr, ""))
}
