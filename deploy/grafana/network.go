package main

func network() dashboard {
	link := func(field, function string) string {
		return from("net_link", field) + where("link") + windows(function) + by("link")
	}
	probes := func(field string) string {
		return from("net_probes", field) + where("node") + windows("sum") + sumBy("_field")
	}
	return dashboard{
		uid: "switchyard-network", title: "Switchyard: network", from: "now-1h", stage: "raw",
		variables: []variable{
			{name: "link", label: "Link", query: choices("net_link", "sent", "link"), all: true},
			{name: "node", label: "Node", query: choices("net_probes", "sent", "node"), all: true},
		},
		panels: []panel{
			{title: "Degraded links", kind: number, unit: "none", width: 6, height: 4, about: "That lose or delay packets, by the newest window.", queries: []string{
				fromStage("raw", "net_link", "degraded") + where("link") + by("link") + " |> last()\n" + total(),
			}},
			{title: "Probed links", kind: number, unit: "none", width: 6, height: 4, about: "", queries: []string{
				from("net_link", "sent") + where("link") + by("link") + " |> last()\n |> group()\n |> count()\n",
			}},
			{title: "Probes lost", kind: number, unit: "percentunit", width: 6, height: 4, about: "Of those between all nodes, round trips that no answer came to.", queries: []string{unanswered()}},
			{title: "Probes sent", kind: number, unit: "none", width: 6, height: 4, about: "", queries: []string{from("net_probes", "sent") + where("node") + total()}},
			{title: "What was wrong with links", kind: table, unit: "none", width: 24, height: 8, about: "The newest of each link that lost or delayed packets in this time; seven days back at most.", queries: []string{degradedLinks()}},
			{title: "Loss by link", kind: series, unit: "percentunit", width: 12, height: 9, about: "Of links that are degraded; of others it is 0.", queries: []string{link("loss_ratio", "max")}},
			{title: "Delay by link", kind: series, unit: "s", width: 12, height: 9, about: "How much longer than usual packets take over links that are slow; over others it is 0.", queries: []string{link("delay_s", "max")}},
			{title: "Round trips by link", kind: series, unit: "s", width: 12, height: 9, about: "Median over the probed paths that cross it.", queries: []string{link("rtt_s", "mean")}},
			{title: "Slowest tenth by link", kind: series, unit: "s", width: 12, height: 9, about: "The largest ninth decile of a path that crosses it.", queries: []string{link("rtt_high_s", "max")}},
			{title: "Probes", kind: series, unit: "none", width: 12, height: 8, about: "Sent, answered, and received by the other end.", queries: []string{probes("sent"), probes("answered"), probes("received")}},
			{title: "Probes by node", kind: table, unit: "none", width: 12, height: 8, about: "Late flows: probes came after their slot was told, so a clock is behind. Seven days back at most.", queries: []string{probesByNode()}},
		},
	}
}

// by makes a row of points for each value of a tag.
func by(tag string) string {
	return " |> group(columns: [\"" + tag + "\"])\n |> sort(columns: [\"_time\"])\n"
}

const inTime = " |> range(start: v.timeRangeStart, stop: v.timeRangeStop)\n"

// degradedLinks has the newest bad window of each link.
func degradedLinks() string {
	return "from(bucket: \"${database}/raw\")\n" + inTime +
		" |> filter(fn: (r) => r._measurement == \"net_link\" and (r._field == \"state\" or r._field == \"degraded\" or r._field == \"loss_ratio\" or r._field == \"delay_s\" or r._field == \"sent\"))\n" + where("link") +
		" |> pivot(rowKey: [\"_time\"], columnKey: [\"_field\"], valueColumn: \"_value\")\n |> filter(fn: (r) => r.degraded == 1)\n" +
		" |> group(columns: [\"link\"])\n |> sort(columns: [\"_time\"])\n |> last(column: \"degraded\")\n |> group()\n" +
		" |> keep(columns: [\"_time\", \"link\", \"state\", \"loss_ratio\", \"delay_s\", \"sent\"])\n |> sort(columns: [\"link\"])\n"
}

// unanswered is the part of the probes to which no answer came.
func unanswered() string {
	return "from(bucket: \"${database}/${stage}\")\n" + inTime +
		" |> filter(fn: (r) => r._measurement == \"net_probes\" and (r._field == \"sent\" or r._field == \"answered\"))\n" + where("node") +
		" |> pivot(rowKey: [\"_time\"], columnKey: [\"_field\"], valueColumn: \"_value\")\n |> group()\n" +
		" |> reduce(identity: {sent: 0.0, answered: 0.0}, fn: (r, accumulator) => ({sent: accumulator.sent + float(v: r.sent), answered: accumulator.answered + float(v: r.answered)}))\n" +
		" |> map(fn: (r) => ({_value: 1.0 - r.answered / r.sent}))\n"
}

// probesByNode adds up what each agent counted.
func probesByNode() string {
	return "from(bucket: \"${database}/raw\")\n" + inTime +
		" |> filter(fn: (r) => r._measurement == \"net_probes\" and (r._field == \"sent\" or r._field == \"answered\" or r._field == \"received\" or r._field == \"late_flows\"))\n" + where("node") +
		" |> group(columns: [\"node\", \"_field\"])\n |> sum()\n |> pivot(rowKey: [\"node\"], columnKey: [\"_field\"], valueColumn: \"_value\")\n |> group()\n" +
		" |> keep(columns: [\"node\", \"sent\", \"answered\", \"received\", \"late_flows\"])\n |> sort(columns: [\"node\"])\n"
}
