package main

func network() dashboard {
	link := func(field, function string) string {
		return from("net_link", field) + where("link") + windows(function) + by("link")
	}
	probes := func(field string) string {
		return from("net_probes", field) + where("node") + windows("sum") + sumBy("_field")
	}
	degraded := fromStage("raw", "net_link", "degraded") + where("link") + by("link") + " |> last()\n" + total()
	probed := from("net_link", "sent") + where("link") + by("link") + " |> last()\n |> group()\n |> count()\n"
	return dashboard{
		on: influxDB(), uid: "switchyard-network", title: "Switchyard: network", from: "now-1h", stage: "raw",
		variables: []variable{
			{name: "link", label: "Link", query: choices("net_link", "sent", "link"), all: true},
			{name: "node", label: "Node", query: choices("net_probes", "sent", "node"), all: true},
		},
		panels: []panel{
			stat("Degraded links", "none", 6, "Links that lose or delay packets, by the newest window.", degraded).coloured(step{1, "red"}),
			stat("Probed links", "none", 6, "", probed),
			stat("Probes lost", "percentunit", 6, "Round trips without an answer, of probes between all nodes.", unanswered()),
			stat("Probes sent", "none", 6, "", from("net_probes", "sent")+where("node")+total()),
			list("Newest faults of links", "none", 24, 8,
				"The newest fault of each link that lost or delayed packets in this time; at most seven days back.", degradedLinks()),
			chart("Loss by link", "percentunit", 12, 9, "Of degraded links; 0 for others.", link("loss_ratio", "max")),
			chart("Delay by link", "s", 12, 9, "Extra delay of packets over slow links; 0 for others.", link("delay_s", "max")),
			chart("Round trips by link", "s", 12, 9, "Median over the probed paths that cross it.", link("rtt_s", "mean")),
			chart("Slowest tenth by link", "s", 12, 9, "The largest ninth decile of a path that crosses it.", link("rtt_high_s", "max")),
			chart("Probes", "none", 12, 8, "Sent, answered, and received by the other end.",
				probes("sent"), probes("answered"), probes("received")),
			list("Probes by node", "none", 12, 8,
				"Late flows: probes came after their slot was reported, so a clock is behind. At most seven days back.", probesByNode()),
		},
	}
}

// by makes a row of points for each value of a tag.
func by(tag string) string {
	return ` |> group(columns: ["` + tag + `"])
 |> sort(columns: ["_time"])
`
}

// degradedLinks returns the newest bad window of each link.
func degradedLinks() string {
	return `from(bucket: "${database}/raw")
` + inTime + ` |> filter(fn: (r) => r._measurement == "net_link" and ` +
		`(r._field == "state" or r._field == "degraded" or r._field == "loss_ratio" or r._field == "delay_s" or r._field == "sent"))
` + where("link") + pivoted + ` |> filter(fn: (r) => r.degraded == 1)
` + by("link") + ` |> last(column: "degraded")
 |> group()
 |> keep(columns: ["_time", "link", "state", "loss_ratio", "delay_s", "sent"])
 |> sort(columns: ["link"])
`
}

// unanswered returns the fraction of probes without an answer.
func unanswered() string {
	return `from(bucket: "${database}/${stage}")
` + inTime + ` |> filter(fn: (r) => r._measurement == "net_probes" and (r._field == "sent" or r._field == "answered"))
` + where("node") + pivoted + ` |> group()
 |> reduce(identity: {sent: 0.0, answered: 0.0}, fn: (r, accumulator) => ` +
		`({sent: accumulator.sent + float(v: r.sent), answered: accumulator.answered + float(v: r.answered)}))
 |> map(fn: (r) => ({_value: 1.0 - r.answered / r.sent}))
`
}

// probesByNode sums the counts of each agent.
func probesByNode() string {
	return `from(bucket: "${database}/raw")
` + inTime + ` |> filter(fn: (r) => r._measurement == "net_probes" and ` +
		`(r._field == "sent" or r._field == "answered" or r._field == "received" or r._field == "late_flows"))
` + where("node") + ` |> group(columns: ["node", "_field"])
 |> sum()
 |> pivot(rowKey: ["node"], columnKey: ["_field"], valueColumn: "_value")
 |> group()
 |> keep(columns: ["node", "sent", "answered", "received", "late_flows"])
 |> sort(columns: ["node"])
`
}
