package main

// dashboards returns all dashboards.
func dashboards() []dashboard {
	return []dashboard{cluster(), job(), energyReport(), nodes(), network(), operator(), user(), energyOfOwners()}
}

func nodeVariable() variable {
	return variable{name: "node", label: "Node", query: choices("component_energy", "measured_uj", "node"), all: true}
}

func cluster() dashboard {
	use := func(field string) string {
		return from("component_energy", field) + where("node") + windows("sum") + sumBy("_field") + kWh()
	}
	budget := from("component_energy", "measured_uj") + where("node") + windows("count") + ` |> group(columns: ["_time"])
 |> first()
 |> map(fn: (r) => ({_time: r._time, _field: "budget", _value: float(v: "${budget}")}))
 |> group(columns: ["_field"])
 |> sort(columns: ["_time"])
`
	return dashboard{
		on: influxDB(), uid: "switchyard-cluster", title: "Switchyard: cluster", from: "now-1h", stage: "raw",
		variables: []variable{nodeVariable(), {name: "budget", label: "Budget, W", value: "10000"}},
		panels: []panel{
			stat("Energy", "kwatth", 6, "All measured energy in this time.",
				from("component_energy", "measured_uj")+where("node")+total()+kWh()),
			stat("Cost", "none", 6, "Of the energy used by jobs, at the facility, by the tariff.",
				from("job_energy", "cost")+where("node")+total()),
			stat("CO2e", "massg", 6, "Of the energy used by jobs, at the facility.",
				from("job_energy", "co2e_g")+where("node")+total()),
			stat("Coverage", "percentunit", 6, "The measured part of the time.",
				rows("${stage}", "measured_s", "expected_s")+where("node")+coverage()).lowIsBad(),
			areas("Power by component", "watt", 12, 9, "GPUs, and processors with their memory; the line is the budget.",
				power("gpu_power", "_measurement"), power("cpu_energy", "_measurement"), budget),
			areas("Energy by use", "kwatth", 12, 9, "The parts add up to the measured energy.",
				use("attributed_uj"), use("idle_uj"), use("unattributed_uj")),
			list("Jobs by energy", "kwatth", 12, 9, "The 20 jobs that used most in this time; at most seven days back.", topJobs()).
				with(field{name: "job_id", title: "Job", link: "/d/switchyard-job?var-job=${__value.raw}&${__url_time_range}", about: "Board of the job"}),
			chart("Carbon intensity and load", "watt", 12, 9, "Grams of CO2e per kWh, and watts of all GPUs.",
				from("grid", "gco2_kwh")+windows("mean"), power("gpu_power", "_measurement")).
				with(field{name: "gco2_kwh", title: "g of CO2e per kWh", unit: "massg"}),
			list("Plans: predicted and real", "none", 12, 8,
				"Run times, energy and cost of ended jobs, as predicted by their first plan and as measured. "+
					"Predicted is the power of the devices at their limits.",
				planDecisions()).with(microjoules("predicted_uj", "actual_uj")...).with(field{name: "predicted_s", unit: "s"}, field{name: "actual_s", unit: "s"}),
			list("Events", "none", 12, 8, "The marks in the charts.", jobEvents()),
		},
	}
}

// topJobs returns the 20 jobs that used most energy.
func topJobs() string {
	return perJob("active_uj") + where("node") + ` |> group(columns: ["job_id", "user"])
 |> sum(column: "active_uj")
 |> map(fn: (r) => ({job_id: r.job_id, user: r.user, kwh: float(v: r.active_uj) / ` + microjoulesPerKWh + `}))
 |> group()
 |> sort(columns: ["kwh"], desc: true)
 |> limit(n: 20)
`
}

// planDecisions returns the predictions and results of ended jobs.
func planDecisions() string {
	return `from(bucket: "${database}/raw")
` + inTime + ` |> filter(fn: (r) => r._measurement == "plan_decision")
` + pivoted + ` |> group()
 |> keep(columns: ["_time", "policy", "job_id", ` +
		`"predicted_s", "actual_s", "predicted_uj", "actual_uj", "predicted_cost", "actual_cost"])
 |> sort(columns: ["_time"])
`
}

func job() dashboard {
	choose := `from(bucket: "${database}/raw")
` + inTime + ` |> filter(fn: (r) => r._measurement == "job_energy" and r._field == "job_id")
 |> group()
 |> distinct(column: "_value")
`
	epoch := func(fields string) string {
		return `from(bucket: "${database}/raw")
` + inTime + ` |> filter(fn: (r) => r._measurement == "job_epoch")
` + pivoted + ` |> group()
` + ofJob() + ` |> sort(columns: ["_time"])
 |> keep(columns: [` + fields + `])
`
	}
	energy := perJob("active_uj") + ofJob() + ` |> group()
 |> sum(column: "active_uj")
 |> map(fn: (r) => ({_value: float(v: r.active_uj) / ` + microjoulesPerKWh + `}))
`
	byComponent := perJob("active_uj") + ofJob() + ` |> group(columns: ["component"])
 |> sort(columns: ["_time"])
 |> aggregateWindow(every: v.windowPeriod, fn: sum, column: "active_uj", createEmpty: false)
 |> map(fn: (r) => ({_time: r._time, component: r.component, ` +
		`_value: float(v: r.active_uj) * 1000.0 / float(v: int(v: v.windowPeriod))}))
 |> group(columns: ["component"])
`
	joules := ` |> map(fn: (r) => ({_time: r._time, _value: float(v: r.energy_uj) / 1000000.0}))
`
	return dashboard{
		on: influxDB(), uid: "switchyard-job", title: "Switchyard: job", from: "now-1h", stage: "raw",
		variables: []variable{{name: "job", label: "Job", query: choose}},
		panels: []panel{
			stat("Energy", "kwatth", 8, "Of the job in this time.", energy),
			stat("Coverage", "percentunit", 8, "The measured part of the time.",
				rows("raw", "job_id", "measured_s", "expected_s")+ofJob()+coverage()).lowIsBad(),
			stat("Cost", "none", 8, "At the facility, by the tariff.",
				perJob("cost")+ofJob()+" |> group()\n |> sum(column: \"cost\")\n"),
			areas("Power by component", "watt", 24, 9, "The job's use of each component, per second.", byComponent),
			chart("Energy of each epoch", "joule", 12, 8, "Booked between the ends of two epochs.",
				epoch(`"_time", "energy_uj"`)+joules),
			chart("Metric after each epoch", "none", 12, 8, "Accuracy if the job reports it, else its loss.",
				epoch(`"_time", "metric"`)),
			list("Epochs", "none", 12, 8, "", epoch(`"_time", "epoch", "batch", "time_s", "energy_uj", "metric"`)).
				with(microjoules("energy_uj")...).with(field{name: "time_s", unit: "s"}),
			list("Energy to reach a metric", "none", 12, 8, "Energy and time against the metric reached.",
				epoch(`"energy_uj", "time_s", "metric"`)+" |> cumulativeSum(columns: [\"energy_uj\", \"time_s\"])\n").
				with(microjoules("energy_uj")...).with(field{name: "time_s", unit: "s"}),
		},
	}
}

func energyReport() dashboard {
	used := from("job_energy", "active_uj") + where("user") + where("tenant")
	panels := []panel{
		stat("Used by jobs", "kwatth", 8, "", used+total()+kWh()),
		stat("Spent idle", "kwatth", 8, "", from("component_energy", "idle_uj")+total()+kWh()),
		stat("Unattributed", "kwatth", 8, "Measured, but neither idle nor used by a job.",
			from("component_energy", "unattributed_uj")+total()+kWh()),
	}
	for _, tag := range []string{"user", "tenant"} {
		about := "Of jobs, by calendar month (UTC)."
		panels = append(panels,
			list("kWh by "+tag+" and month", "kwatth", 8, 8, about, monthly("active_uj", tag, microjoulesPerKWh)),
			list("Cost by "+tag+" and month", "none", 8, 8, about+" At the facility.", monthly("cost", tag, "1.0")),
			list("CO2e by "+tag+" and month", "massg", 8, 8, about+" At the facility.", monthly("co2e_g", tag, "1.0")),
		)
	}
	byMethod := used + ` |> group(columns: ["component", "device_model", "method"])
 |> sum()
` + kWh() + ` |> group()
 |> sort(columns: ["_value"], desc: true)
`
	panels = append(panels,
		areas("kWh by user", "kwatth", 12, 9, "", used+windows("sum")+sumBy("user")+kWh()),
		list("kWh by device and method", "kwatth", 12, 9, "How the figures were obtained.", byMethod),
	)
	return dashboard{
		on: influxDB(), uid: "switchyard-energy", title: "Switchyard: energy report", from: "now-30d", stage: "1h",
		variables: []variable{
			{name: "user", label: "User", query: choices("job_energy", "active_uj", "user"), all: true},
			{name: "tenant", label: "Tenant", query: choices("job_energy", "active_uj", "tenant"), all: true},
		},
		panels: panels,
	}
}

func nodes() dashboard {
	gpu := func(field, function string) string {
		return from("gpu_power", field) + where("node") + windows(function) + ` |> group(columns: ["node", "gpu_uuid"])
 |> sort(columns: ["_time"])
`
	}
	processors := from("cpu_energy", "power_w") + where("node") + windows("mean") + ` |> group(columns: ["node", "zone", "source"])
 |> sort(columns: ["_time"])
`
	byNode := from("component_energy", "measured_uj") + where("node") + ` |> group(columns: ["node"])
 |> sum()
` + kWh() + ` |> group()
 |> sort(columns: ["node"])
`
	byCounter := from("gpu_power", "energy_uj") + where("node") + ` |> difference(nonNegative: true)
 |> sum()
` + kWh() + ` |> group()
 |> keep(columns: ["node", "gpu_uuid", "_value"])
 |> sort(columns: ["node", "gpu_uuid"])
`
	return dashboard{
		on: influxDB(), uid: "switchyard-nodes", title: "Switchyard: nodes", from: "now-1h", stage: "raw",
		variables: []variable{nodeVariable()},
		panels: []panel{
			list("Age of the newest interval", "s", 8, 8,
				"More than a few seconds: the agent, the bus or the energy service lags behind.", age()),
			list("Power now, and limit", "watt", 16, 8, "Of each GPU, the newest in this time.", powerAndLimit()).
				with(field{name: "sm_util_ratio", unit: "percentunit"}),
			chart("Power of each GPU", "watt", 12, 9, "", gpu("power_w", "mean")),
			chart("Utilisation of each GPU", "percentunit", 12, 9, "High with low power may be a job that hangs.",
				gpu("sm_util_ratio", "mean")),
			chart("Temperature of each GPU", "celsius", 12, 8, "If the driver reports it.", gpu("temperature_c", "max")).
				coloured(step{80, "yellow"}, step{90, "red"}),
			chart("Memory of each GPU", "bytes", 12, 8, "In use, if the driver reports it.", gpu("memory_used_bytes", "max")),
			list("Throttled", "s", 24, 7,
				"Seconds in which clocks were lower than they could be, by the driver's reason; at most seven days back.",
				throttled()),
			chart("Power of processors and memory", "watt", 12, 9, "", processors),
			chart("Plug and components", "watt", 12, 9,
				"Power of whole nodes by PDU, Redfish or PCM, and the sum of GPUs and processors.",
				power("node_power", "source"), power("gpu_power", "_measurement"), power("cpu_energy", "_measurement")),
			{title: "Energy by node", kind: columns, unit: "kwatth", width: 12, height: 8, queries: []string{byNode}},
			list("Energy by counter", "kwatth", 12, 8, "Differences of the unwrapped counters: exact at any detail.", byCounter),
		},
	}
}

// powerAndLimit returns the newest power, limit and utilisation of each GPU.
func powerAndLimit() string {
	return `from(bucket: "${database}/${stage}")
` + inTime + ` |> filter(fn: (r) => r._measurement == "gpu_power" and ` +
		`(r._field == "power_w" or r._field == "limit_w" or r._field == "sm_util_ratio"))
` + where("node") + ` |> last()
 |> pivot(rowKey: ["node", "gpu_uuid", "model"], columnKey: ["_field"], valueColumn: "_value")
 |> group()
 |> keep(columns: ["node", "gpu_uuid", "model", "power_w", "limit_w", "sm_util_ratio"])
 |> sort(columns: ["node", "gpu_uuid"])
`
}

// throttled counts the seconds of each GPU with lowered clocks, by reason.
func throttled() string {
	return fromStage("raw", "gpu_power", "throttle") + where("node") + ` |> filter(fn: (r) => r._value != "")
 |> map(fn: (r) => ({r with reason: r._value}))
 |> group(columns: ["node", "gpu_uuid", "reason"])
 |> count()
 |> group()
 |> sort(columns: ["node", "gpu_uuid"])
`
}
