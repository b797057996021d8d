package main

// actuator is for whoever runs Laxity: does it act, how fast, and what failed.
func actuator() dashboard {
	m := func(name string) string { return "laxity_actuator_" + name }
	per := func(how, name string) string { return how + " by (node) (" + in(m(name)) + ")" }
	counts := func(by, name string) query {
		return query{expr: "sum by (" + by + ") (increase(" + in(m(name)) + "[$__rate_interval]))", legend: "{{" + by + "}}"}
	}
	actions := counts("kind, result", "actions_total")
	actions.legend = "{{kind}} {{result}}"
	alerts := counts("action, result", "alerts_total")
	alerts.legend = "{{action}} {{result}}"
	return dashboard{
		uid: "laxity-actuator", title: "Laxity / Actuator",
		description: "What the actuators do, how long the way from a GPU to a pause is, and whether anything keeps them from acting.",
		variables:   []object{chooseSource(), choose("node", "Node", "laxity_actuator_ready")},
		rows: []row{
			{"", []panel{
				stat("Ready", "Actuators that can act: facts are fresh, and a guardian watches unless --guardian=warn.", "none", zeroIsBad, query{expr: "sum(" + in(m("ready")) + ")"}),
				stat("Guardians", "That see to it that nothing stays stopped.", "none", zeroIsBad, query{expr: "sum(" + in(m("guardian_up")) + ")"}),
				stat("Breakers open", "Nothing is held there for a minute: too many actions, or too many containers stopped.", "none", anyIsBad, query{expr: "sum(" + in(m("breaker_open")) + ")"}),
				stat("Stand by", "Another actuator acts on their engine.", "none", anyIsWarning, query{expr: "sum(" + in(m("standby")) + ")"}),
				stat("Containers held", "Paused by the actuator.", "none", nil, query{expr: "sum(" + in(m("holds")) + ")"}),
				stat("Alerts that wait", "Accepted, and did not take effect yet.", "none", []object{step(nil, "green"), step(10, "orange"), step(100, "red")}, query{expr: "sum(" + in(m("inbox_messages")) + ")"}),
			}},
			{"What it does", []panel{
				timeline("Arbitration", "When the policy decided who runs on a GPU.", object{
					"0": object{"text": "free", "color": "transparent", "index": 0}, "1": object{"text": "arbitrated", "color": "orange", "index": 1},
				}, ofGPU("max by (node, gpu) ("+in(m("arbitration_open"))+")", "")),
				heldTimeline(),
				series("Slices and channels", "Time slices set and put back; channels taken off the GPU and switched on again.", "none", counts("kind", "channel_changes_total")).stacked(),
				series("Actions", "Pauses and unpauses by result.", "none", actions).stacked(),
				series("Preemptions and breaker", "Containers stopped for one with an earlier deadline; how often everything was released.", "none",
					query{expr: "sum(increase(" + in(m("preemptions_total")) + "[$__rate_interval]))", legend: "preemptions"},
					query{expr: "sum(increase(" + in(m("breaker_trips_total")) + "[$__rate_interval]))", legend: "breaker trips"}).stacked(),
			}},
			{"How fast", []panel{
				series("Decision", "From the arrival of a snapshot to the plan.", "s", quantiles("", "", m("decision_duration_seconds"))...),
				series("Snapshot to action", "From the arrival of a snapshot to the end of an action that it made necessary.", "s", quantiles("kind", "{{kind}}", m("snapshot_to_action_seconds"))...).none("no action"),
				series("Action", "To carry one out, the check of the kernel's freezer included.", "s", quantiles("kind", "{{kind}}", m("action_duration_seconds"))...).none("no action"),
				series("Calls to the GPU driver", "By what they do: the time of a call to the driver's resource manager.", "s", quantiles("call", "{{call}}", m("channel_call_seconds"))...).wide(12).none("no call"),
				series("The way of an alert", "One scrape, one evaluation and one notification lie between the GPU and the actuator: this is how long a scrape takes, and how old the facts are.", "s",
					query{expr: "max by (node) (" + in("scrape_duration_seconds", `job="laxity-exporter"`) + ")", legend: "{{node}} scrape of the exporter"},
					query{expr: per("max", "snapshot_age_seconds"), legend: "{{node}} facts of the actuator"},
					query{expr: "max by (node) (" + in("laxity_exporter_snapshot_age_seconds") + ")", legend: "{{node}} facts of the exporter"}).wide(12),
			}},
			{"What came in, and what failed", []panel{
				series("Notifications", "By the code of the answer. 503 is repeated by Alertmanager, 4xx is not.", "none", counts("code", "notifications_total")).stacked(),
				series("Alerts", "By what they asked for and what became of them.", "none", alerts).stacked(),
				series("Holds that ended against our will", "By reason; and processes that the guardian continued though nobody wanted them stopped, which is a fault of Laxity.", "none",
					counts("reason", "holds_lost_total"), query{expr: "sum(increase(" + in(m("stray_stops_total")) + "[$__rate_interval]))", legend: "stray stops"}).stacked(),
				alertsTable().wide(24),
			}},
		},
	}
}
