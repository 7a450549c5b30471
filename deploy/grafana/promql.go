package main

// The dashboards on Prometheus. Their metrics are in docs/metrics.md, the records in deploy/prometheus/records.yaml.
// Each web process answers for the whole cluster, so queries take the largest of what several of them say.

// pageVariable is where the page of Switchyard is.
func pageVariable() variable {
	return variable{name: "page", label: "Page", value: "http://127.0.0.1:7470"}
}

func owners() []variable {
	of := func(label string) string { return "label_values(switchyard_owner_energy_joules_total, " + label + ")" }
	return []variable{
		{name: "tenant", label: "Tenant", query: of("tenant"), all: true},
		{name: "user", label: "User", query: of("user"), all: true},
		{name: "project", label: "Project", query: of("project"), all: true},
	}
}

// ofOwners restricts a metric to the chosen owners.
const ofOwners = `{tenant=~"${tenant:regex}",user=~"${user:regex}",project=~"${project:regex}"}`

// jobLinks are the fields of a table of jobs that lead on.
func jobLinks() []field {
	return []field{
		{name: "Time", hidden: true},
		{name: "job_id", title: "Job", link: "${page}/#/jobs/${__value.raw}", about: "Page of the job"},
		{name: "name", title: "Name", link: "/d/switchyard-user?var-job=${__data.fields.job_id}&${__url_time_range}", about: "Curves of the job"},
		{name: "user", title: "User"},
		{name: "tenant", title: "Tenant"},
		{name: "project", title: "Project"},
		{name: "state", title: "State"},
		{name: "reason", title: "Reason"},
	}
}

// lines is a chart whose lines have names.
func lines(p panel, legend string) panel {
	p.legend = legend
	return p
}

func operator() dashboard {
	const active = `switchyard_job_state{state=~"starting|profiling|running|preempting"}`
	jobs := list("Jobs that hold devices", "none", 24, 9, "A job leads to its page, its name to its curves.",
		"max by (job_id, name, user, tenant, project, state, reason) ("+active+")")
	for _, value := range []string{"switchyard_job_devices", "switchyard_job_progress_ratio", "switchyard:job_power:watts", "switchyard_job_predicted_finish_timestamp_seconds * 1000"} {
		jobs.queries = append(jobs.queries, "max by (job_id) ("+value+" and on (job_id) "+active+")")
	}
	return dashboard{
		on: prometheus(), uid: "switchyard-operator", title: "Switchyard: operator", from: "now-3h", variables: []variable{pageVariable()},
		panels: []panel{
			stat("Nodes that take no jobs", "none", 4, "Cordoned, silent or set aside: `switchyard node list` says why.",
				"count(min by (node) (switchyard_node_schedulable) == 0) or vector(0)").coloured(step{1, "orange"}),
			stat("Devices held", "percentunit", 4, "By jobs.", `sum(switchyard:devices:count{use="held"}) / sum(switchyard:devices:count)`).between(0, 1),
			stat("Jobs that run", "none", 4, "", `sum(max by (state) (switchyard_jobs{state=~"starting|profiling|running|preempting"}))`),
			stat("Jobs that wait", "none", 4, "For devices.", `sum(max by (state) (switchyard_jobs{state=~"submitted|queued|preempted|recovering"}))`),
			stat("Power now", "watt", 4, "Of all nodes.", "switchyard:cluster_power:watts"),
			stat("Alerts", "none", 4, "Those that fire.", `count(ALERTS{alertname=~"Switchyard.*",alertstate="firing"}) or vector(0)`).coloured(step{1, "red"}),
			jobs.with(jobLinks()...).with(
				field{name: "Value #A", hidden: true}, field{name: "Value #B", title: "Devices"}, field{name: "Value #C", title: "Progress", unit: "percentunit", bar: true},
				field{name: "Value #D", title: "Power", unit: "watt"}, field{name: "Value #E", title: "Ends", unit: "dateTimeFromNow"}),
			lines(areas("Devices", "none", 8, 8, "By kind and use.", "switchyard:devices:count"), "{{kind}} {{use}}"),
			lines(areas("Waiting jobs", "none", 8, 8, "By user.", "sum by (user) (switchyard:queue_jobs:count)"), "{{user}}"),
			lines(chart("Longest wait", "s", 8, 8, "Of the jobs of a user that wait.", "max by (user) (switchyard_queue_oldest_seconds)"), "{{user}}").
				coloured(step{24 * 3600, "orange"}),
			lines(areas("Power by node", "watt", 12, 8, "", "max by (node) (switchyard_node_power_watts)"), "{{node}}"),
			lines(areas("Power by use", "watt", 12, 8, "Of jobs, of idle devices, and of what belongs to no job.", "sum by (kind) (rate(switchyard_energy_joules_total[$__rate_interval]))"), "{{kind}}"),
			lines(chart("Utilisation of GPUs", "percentunit", 12, 8, "High with low power may be a job that hangs.", "max by (node, device) (switchyard_device_utilization_ratio)"), "{{node}} {{device}}").
				between(0, 1),
			lines(chart("Temperature of GPUs", "celsius", 12, 8, "", "max by (node, device) (switchyard_device_temperature_celsius)"), "{{node}} {{device}}").
				coloured(step{80, "yellow"}, step{90, "red"}),
			lines(chart("Time to the first start", "s", 8, 8, "Half, and nine of ten, of the jobs that start wait no longer.",
				"histogram_quantile(0.5, sum by (le) (rate(switchyard_admission_wait_seconds_bucket[30m])))",
				"histogram_quantile(0.9, sum by (le) (rate(switchyard_admission_wait_seconds_bucket[30m])))"), ""),
			lines(chart("Writes to the bus", "s", 8, 8, "99 of 100 take no longer.",
				"histogram_quantile(0.99, sum by (le) (rate(switchyard_bus_write_seconds_bucket[$__rate_interval])))"), "").coloured(step{0.5, "red"}),
			lines(chart("Consumers behind", "s", 8, 8, "Age of the oldest message that is not handled.", "max by (consumer) (switchyard_bus_consumer_oldest_seconds)"), "{{consumer}}").
				coloured(step{30, "red"}),
		},
	}
}

func user() dashboard {
	mine := list("Jobs", "none", 24, 9, "A job leads to its page, its name to its curves below.",
		"max by (job_id, name, user, tenant, project, state, reason) (switchyard_job_state"+ofOwners+")")
	for _, metric := range []string{"switchyard_job_devices", "switchyard_job_progress_ratio", "switchyard:job_power:watts"} {
		mine.queries = append(mine.queries, "max by (job_id) ("+metric+ofOwners+")")
	}
	mine.queries = append(mine.queries,
		"max by (job_id) (sum by (job_id, instance) (switchyard_job_energy_joules_total"+ofOwners+"))",
		"max by (job_id) (switchyard_job_waiting_seconds"+ofOwners+")",
		"max by (job_id) (switchyard_job_predicted_finish_timestamp_seconds"+ofOwners+") * 1000")
	const job = `{job_id=~"${job:regex}"}`
	curve := func(title, unit, about, metric string) panel {
		return lines(chart(title, unit, 12, 8, about, "max by (job_id, name) ("+metric+job+")"), "{{name}} {{job_id}}")
	}
	return dashboard{
		on: prometheus(), uid: "switchyard-user", title: "Switchyard: jobs of a user", from: "now-3h",
		variables: append(owners(), variable{name: "job", label: "Job", query: "label_values(switchyard_job_state" + ofOwners + ", job_id)", all: true}, pageVariable()),
		panels: []panel{
			mine.with(jobLinks()...).with(
				field{name: "Value #A", hidden: true}, field{name: "Value #B", title: "Devices"}, field{name: "Value #C", title: "Progress", unit: "percentunit", bar: true},
				field{name: "Value #D", title: "Power", unit: "watt"}, field{name: "Value #E", title: "Energy", unit: "joule"},
				field{name: "Value #F", title: "Waited", unit: "s"}, field{name: "Value #G", title: "Ends", unit: "dateTimeFromNow"}),
			curve("Loss", "none", "Of the newest epoch, in the job's own unit.", "switchyard_job_loss"),
			curve("Progress", "percentunit", "The part of the training that is done.", "switchyard_job_progress_ratio").between(0, 1),
			curve("Time of a step", "s", "Mean of the last steps that the code reported.", "switchyard_job_step_seconds"),
			lines(areas("Power", "watt", 12, 8, "By component.",
				"max by (job_id, name, component) (rate(switchyard_job_energy_joules_total"+job+"[$__rate_interval]))"), "{{name}} {{component}}"),
			curve("Devices", "none", "", "switchyard_job_devices"),
			curve("Restarts", "none", "Attempts after the first.", "switchyard_job_restarts_total"),
		},
	}
}

func energyOfOwners() dashboard {
	grown := func(metric string) string { return "increase(" + metric + "[$__range])" }
	const kWh = " / 3.6e6"
	panels := []panel{
		stat("Used by jobs", "kwatth", 6, "", "sum("+grown("switchyard_owner_energy_joules_total"+ofOwners)+")"+kWh),
		stat("Cost", "none", 6, "Of that energy at the facility, in the currency of the tariff.", "sum("+grown("switchyard_owner_cost_total"+ofOwners)+")"),
		stat("CO2e", "massg", 6, "Of that energy at the facility.", "sum("+grown("switchyard_owner_co2e_grams_total"+ofOwners)+")"),
		stat("Measured", "percentunit", 6, "The part of the time without a gap in the measurements of a node.",
			"1 - clamp_max(sum("+grown("switchyard_energy_gap_seconds_total")+") / scalar(count(max by (node) (switchyard_node_seen_timestamp_seconds))) / $__range_s, 1)").lowIsBad(),
		lines(areas("Power by use", "watt", 24, 8, "The parts add up to what was measured.", "sum by (kind) (rate(switchyard_energy_joules_total[$__rate_interval]))"), "{{kind}}"),
	}
	for _, label := range []string{"user", "tenant", "project"} {
		sums := list("By "+label, "none", 8, 9, "Energy, cost and carbon in the time that is shown.", "sum by ("+label+") ("+grown("switchyard_owner_energy_joules_total"+ofOwners)+")")
		sums.queries = append(sums.queries,
			"sum by ("+label+") ("+grown("switchyard_owner_cost_total"+ofOwners)+")", "sum by ("+label+") ("+grown("switchyard_owner_co2e_grams_total"+ofOwners)+")")
		panels = append(panels, sums.with(
			field{name: "Time", hidden: true}, field{name: "Value #A", title: "Energy", unit: "joule"}, field{name: "Value #B", title: "Cost"}, field{name: "Value #C", title: "CO2e", unit: "massg"}))
	}
	panels = append(panels,
		lines(areas("Power of the jobs of each user", "watt", 12, 8, "", "sum by (user) (switchyard:owner_power:watts"+ofOwners+")"), "{{user}}"),
		lines(chart("Price of a kilowatt-hour", "none", 6, 8, "With the overhead of the building.", "max by (currency) (switchyard_energy_price_per_kwh)"), "{{currency}}"),
		lines(chart("Carbon of a kilowatt-hour", "massg", 6, 8, "With the overhead of the building.", "max(switchyard_energy_co2e_grams_per_kwh)"), "CO2e"),
	)
	return dashboard{on: prometheus(), uid: "switchyard-owners", title: "Switchyard: energy by owner", from: "now-7d", variables: owners(), panels: panels}
}
