package main

// dashboards are all boards.
func dashboards() []dashboard {
	return []dashboard{cluster(), job(), energyReport(), nodes(), network()}
}

func nodeVariable() variable {
	return variable{name: "node", label: "Node", query: choices("component_energy", "measured_uj", "node"), all: true}
}

func cluster() dashboard {
	use := func(field string) string {
		return from("component_energy", field) + where("node") + windows("sum") + sumBy("_field") + kWh()
	}
	return dashboard{
		uid: "switchyard-cluster", title: "Switchyard: cluster", from: "now-1h", stage: "raw",
		variables: []variable{nodeVariable(), {name: "budget", label: "Budget, W", value: "10000"}},
		panels: []panel{
			{title: "Energy", kind: number, unit: "kwatth", width: 6, height: 4, about: "All that was measured in this time.", queries: []string{from("component_energy", "measured_uj") + where("node") + total() + kWh()}},
			{title: "Cost", kind: number, unit: "none", width: 6, height: 4, about: "Of what jobs used, at the facility, by the tariff.", queries: []string{from("job_energy", "cost") + where("node") + total()}},
			{title: "CO2e", kind: number, unit: "massg", width: 6, height: 4, about: "Of what jobs used, at the facility.", queries: []string{from("job_energy", "co2e_g") + where("node") + total()}},
			{title: "Coverage", kind: number, unit: "percentunit", width: 6, height: 4, about: "The measured part of the time.", queries: []string{rows("${stage}", "measured_s", "expected_s") + where("node") + coverage()}},
			{
				title: "Power by component", kind: series, unit: "watt", width: 12, height: 9, stacked: true, about: "GPUs, and processors with their memory; the line is the budget.",
				queries: []string{
					power("gpu_power", "_measurement"), power("cpu_energy", "_measurement"),
					from("component_energy", "measured_uj") + where("node") + windows("count") + " |> group(columns: [\"_time\"])\n |> first()\n |> map(fn: (r) => ({_time: r._time, _field: \"budget\", _value: float(v: \"${budget}\")}))\n |> group(columns: [\"_field\"])\n |> sort(columns: [\"_time\"])\n",
				},
			},
			{title: "What became of the energy", kind: series, unit: "kwatth", width: 12, height: 9, stacked: true, about: "The parts add up to what was measured.", queries: []string{use("attributed_uj"), use("idle_uj"), use("unattributed_uj")}},
			{
				title: "Jobs by energy", kind: table, unit: "kwatth", width: 12, height: 9, about: "The 20 that used most in this time; seven days back at most.",
				queries: []string{perJob("active_uj") + where("node") + " |> group(columns: [\"job_id\", \"user\"])\n |> sum(column: \"active_uj\")\n |> map(fn: (r) => ({job_id: r.job_id, user: r.user, kwh: float(v: r.active_uj) / " + microjoulesPerKWh + "}))\n |> group()\n |> sort(columns: [\"kwh\"], desc: true)\n |> limit(n: 20)\n"},
			},
			{
				title: "Carbon intensity and load", kind: series, unit: "none", width: 12, height: 9, about: "Grams of CO2e per kWh, and watts of all GPUs.",
				queries: []string{from("grid", "gco2_kwh") + windows("mean"), power("gpu_power", "_measurement")},
			},
			{
				title: "Plans: predicted and real", kind: table, unit: "none", width: 12, height: 8, about: "Run times, energy and cost of ended jobs, as predicted when they were first planned and as they came out. Predicted is what the devices draw at their limits.",
				queries: []string{"from(bucket: \"${database}/raw\")\n |> range(start: v.timeRangeStart, stop: v.timeRangeStop)\n |> filter(fn: (r) => r._measurement == \"plan_decision\")\n |> pivot(rowKey: [\"_time\"], columnKey: [\"_field\"], valueColumn: \"_value\")\n |> group()\n |> keep(columns: [\"_time\", \"policy\", \"job_id\", \"predicted_s\", \"actual_s\", \"predicted_uj\", \"actual_uj\", \"predicted_cost\", \"actual_cost\"])\n |> sort(columns: [\"_time\"])\n"},
			},
			{title: "What happened", kind: table, unit: "none", width: 12, height: 8, about: "The same as the marks in the pictures.", queries: []string{jobEvents()}},
		},
	}
}

func job() dashboard {
	choose := "from(bucket: \"${database}/raw\")\n |> range(start: v.timeRangeStart, stop: v.timeRangeStop)\n |> filter(fn: (r) => r._measurement == \"job_energy\" and r._field == \"job_id\")\n |> group()\n |> distinct(column: \"_value\")\n"
	epoch := func(field string) string {
		return "from(bucket: \"${database}/raw\")\n |> range(start: v.timeRangeStart, stop: v.timeRangeStop)\n |> filter(fn: (r) => r._measurement == \"job_epoch\")\n |> pivot(rowKey: [\"_time\"], columnKey: [\"_field\"], valueColumn: \"_value\")\n |> group()\n" +
			ofJob() + " |> sort(columns: [\"_time\"])\n |> keep(columns: [" + field + "])\n"
	}
	sum := perJob("active_uj") + ofJob() + " |> group(columns: [\"component\"])\n |> sort(columns: [\"_time\"])\n"
	return dashboard{
		uid: "switchyard-job", title: "Switchyard: job", from: "now-1h", stage: "raw",
		variables: []variable{{name: "job", label: "Job", query: choose}},
		panels: []panel{
			{title: "Energy", kind: number, unit: "kwatth", width: 8, height: 4, about: "Of the job in this time.", queries: []string{perJob("active_uj") + ofJob() + " |> group()\n |> sum(column: \"active_uj\")\n |> map(fn: (r) => ({_value: float(v: r.active_uj) / " + microjoulesPerKWh + "}))\n"}},
			{title: "Coverage", kind: number, unit: "percentunit", width: 8, height: 4, about: "The measured part of the time.", queries: []string{rows("raw", "job_id", "measured_s", "expected_s") + ofJob() + coverage()}},
			{title: "Cost", kind: number, unit: "none", width: 8, height: 4, about: "At the facility, by the tariff.", queries: []string{perJob("cost") + ofJob() + " |> group()\n |> sum(column: \"cost\")\n"}},
			{
				title: "Power by component", kind: series, unit: "watt", width: 24, height: 9, stacked: true, about: "What the job used of each component, per second.",
				queries: []string{sum + " |> aggregateWindow(every: v.windowPeriod, fn: sum, column: \"active_uj\", createEmpty: false)\n |> map(fn: (r) => ({_time: r._time, component: r.component, _value: float(v: r.active_uj) * 1000.0 / float(v: int(v: v.windowPeriod))}))\n |> group(columns: [\"component\"])\n"},
			},
			{title: "Energy of each epoch", kind: series, unit: "joule", width: 12, height: 8, about: "Booked between the ends of two epochs.", queries: []string{epoch(`"_time", "energy_uj"`) + " |> map(fn: (r) => ({_time: r._time, _value: float(v: r.energy_uj) / 1000000.0}))\n"}},
			{title: "Metric after each epoch", kind: series, unit: "none", width: 12, height: 8, about: "Accuracy where the job tells it, else its loss.", queries: []string{epoch(`"_time", "metric"`)}},
			{title: "Epochs", kind: table, unit: "none", width: 12, height: 8, about: "", queries: []string{epoch(`"_time", "epoch", "batch", "time_s", "energy_uj", "metric"`)}},
			{title: "Way to the goal", kind: table, unit: "none", width: 12, height: 8, about: "Energy and time against the metric that was reached.", queries: []string{epoch(`"energy_uj", "time_s", "metric"`) + " |> cumulativeSum(columns: [\"energy_uj\", \"time_s\"])\n"}},
		},
	}
}

func energyReport() dashboard {
	by := func(tag string) []panel {
		about := "Of jobs, by calendar month (UTC)."
		return []panel{
			{title: "kWh by " + tag + " and month", kind: table, unit: "kwatth", width: 8, height: 8, about: about, queries: []string{monthly("active_uj", tag, microjoulesPerKWh)}},
			{title: "Cost by " + tag + " and month", kind: table, unit: "none", width: 8, height: 8, about: about + " At the facility.", queries: []string{monthly("cost", tag, "1.0")}},
			{title: "CO2e by " + tag + " and month", kind: table, unit: "massg", width: 8, height: 8, about: about + " At the facility.", queries: []string{monthly("co2e_g", tag, "1.0")}},
		}
	}
	panels := []panel{
		{title: "Used by jobs", kind: number, unit: "kwatth", width: 8, height: 4, about: "", queries: []string{from("job_energy", "active_uj") + where("user") + where("tenant") + total() + kWh()}},
		{title: "Spent idle", kind: number, unit: "kwatth", width: 8, height: 4, about: "", queries: []string{from("component_energy", "idle_uj") + total() + kWh()}},
		{title: "Of nobody", kind: number, unit: "kwatth", width: 8, height: 4, about: "Measured, and neither idle nor of any job.", queries: []string{from("component_energy", "unattributed_uj") + total() + kWh()}},
	}
	panels = append(panels, by("user")...)
	panels = append(panels, by("tenant")...)
	panels = append(panels,
		panel{title: "kWh by user", kind: series, unit: "kwatth", width: 12, height: 9, stacked: true, about: "", queries: []string{from("job_energy", "active_uj") + where("user") + where("tenant") + windows("sum") + sumBy("user") + kWh()}},
		panel{title: "kWh by device and method", kind: table, unit: "kwatth", width: 12, height: 9, about: "How the figures were obtained.", queries: []string{from("job_energy", "active_uj") + where("user") + where("tenant") + " |> group(columns: [\"component\", \"device_model\", \"method\"])\n |> sum()\n" + kWh() + " |> group()\n |> sort(columns: [\"_value\"], desc: true)\n"}},
	)
	return dashboard{
		uid: "switchyard-energy", title: "Switchyard: energy report", from: "now-30d", stage: "1h",
		variables: []variable{
			{name: "user", label: "User", query: choices("job_energy", "active_uj", "user"), all: true},
			{name: "tenant", label: "Tenant", query: choices("job_energy", "active_uj", "tenant"), all: true},
		},
		panels: panels,
	}
}

func nodes() dashboard {
	gpu := func(field, function string) string {
		return from("gpu_power", field) + where("node") + windows(function) + " |> group(columns: [\"node\", \"gpu_uuid\"])\n |> sort(columns: [\"_time\"])\n"
	}
	return dashboard{
		uid: "switchyard-nodes", title: "Switchyard: nodes", from: "now-1h", stage: "raw",
		variables: []variable{nodeVariable()},
		panels: []panel{
			{title: "Age of the newest interval", kind: table, unit: "s", width: 8, height: 8, about: "More than a few seconds: the agent, the bus or the energy service lags behind.", queries: []string{age()}},
			{title: "Power now, and limit", kind: table, unit: "watt", width: 16, height: 8, about: "Of each GPU, the newest in this time.", queries: []string{
				"from(bucket: \"${database}/${stage}\")\n |> range(start: v.timeRangeStart, stop: v.timeRangeStop)\n |> filter(fn: (r) => r._measurement == \"gpu_power\" and (r._field == \"power_w\" or r._field == \"limit_w\" or r._field == \"sm_util_ratio\"))\n" + where("node") +
					" |> last()\n |> pivot(rowKey: [\"node\", \"gpu_uuid\", \"model\"], columnKey: [\"_field\"], valueColumn: \"_value\")\n |> group()\n |> keep(columns: [\"node\", \"gpu_uuid\", \"model\", \"power_w\", \"limit_w\", \"sm_util_ratio\"])\n |> sort(columns: [\"node\", \"gpu_uuid\"])\n",
			}},
			{title: "Power of each GPU", kind: series, unit: "watt", width: 12, height: 9, about: "", queries: []string{gpu("power_w", "mean")}},
			{title: "Utilisation of each GPU", kind: series, unit: "percentunit", width: 12, height: 9, about: "High with low power may be a job that hangs.", queries: []string{gpu("sm_util_ratio", "mean")}},
			{title: "Temperature of each GPU", kind: series, unit: "celsius", width: 12, height: 8, about: "Where the driver tells it.", queries: []string{gpu("temperature_c", "max")}},
			{title: "Memory of each GPU", kind: series, unit: "bytes", width: 12, height: 8, about: "In use, where the driver tells it.", queries: []string{gpu("memory_used_bytes", "max")}},
			{title: "Held back", kind: table, unit: "s", width: 24, height: 7, about: "Seconds in which clocks were lower than they could be, by the driver's reason; seven days back at most.", queries: []string{
				fromStage("raw", "gpu_power", "throttle") + where("node") + " |> filter(fn: (r) => r._value != \"\")\n |> map(fn: (r) => ({r with reason: r._value}))\n |> group(columns: [\"node\", \"gpu_uuid\", \"reason\"])\n |> count()\n |> group()\n |> sort(columns: [\"node\", \"gpu_uuid\"])\n",
			}},
			{title: "Power of processors and memory", kind: series, unit: "watt", width: 12, height: 9, about: "", queries: []string{from("cpu_energy", "power_w") + where("node") + windows("mean") + " |> group(columns: [\"node\", \"zone\", \"source\"])\n |> sort(columns: [\"_time\"])\n"}},
			{
				title: "At the plug, and inside", kind: series, unit: "watt", width: 12, height: 9, about: "What PDU, Redfish or PCM say of whole nodes, and the sum of GPUs and processors.",
				queries: []string{power("node_power", "source"), power("gpu_power", "_measurement"), power("cpu_energy", "_measurement")},
			},
			{title: "Energy by node", kind: columns, unit: "kwatth", width: 12, height: 8, about: "", queries: []string{from("component_energy", "measured_uj") + where("node") + " |> group(columns: [\"node\"])\n |> sum()\n" + kWh() + " |> group()\n |> sort(columns: [\"node\"])\n"}},
			{title: "Energy by counter", kind: table, unit: "kwatth", width: 12, height: 8, about: "Differences of the unwrapped counters: exact at any detail.", queries: []string{from("gpu_power", "energy_uj") + where("node") + " |> difference(nonNegative: true)\n |> sum()\n" + kWh() + " |> group()\n |> keep(columns: [\"node\", \"gpu_uuid\", \"_value\"])\n |> sort(columns: [\"node\", \"gpu_uuid\"])\n"}},
		},
	}
}
