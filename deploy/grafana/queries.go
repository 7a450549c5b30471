package main

import (
	"fmt"
	"strings"
)

// The queries are Flux of version 0.65, which InfluxDB 1.8 has, and which InfluxDB 2 still understands.

// Steps of several queries: the board's time, and all fields of a point in one row.
const (
	inTime  = " |> range(start: v.timeRangeStart, stop: v.timeRangeStop)\n"
	pivoted = ` |> pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")
`
)

// from reads a measurement and field of the board's stage, in the board's time.
func from(measurement, field string) string { return fromStage("${stage}", measurement, field) }

func fromStage(stage, measurement, field string) string {
	return fmt.Sprintf("from(bucket: \"${database}/%s\")\n", stage) + inTime +
		fmt.Sprintf(" |> filter(fn: (r) => r._measurement == %q and r._field == %q)\n", measurement, field)
}

// where keeps the rows that a variable chooses.
func where(tag string) string {
	return fmt.Sprintf(" |> filter(fn: (r) => r.%s =~ /^${%s:regex}$/)\n", tag, tag)
}

// windows thins a query out to the resolution of a chart.
func windows(function string) string {
	return " |> aggregateWindow(every: v.windowPeriod, fn: " + function + ", createEmpty: false)\n"
}

// sumBy sums, at each time, the rows with the same tag.
func sumBy(tag string) string {
	return fmt.Sprintf(` |> group(columns: ["_time", %q])
 |> sum()
 |> group(columns: [%q])
 |> sort(columns: ["_time"])
`, tag, tag)
}

// A kilowatt-hour in the unit of the points.
const microjoulesPerKWh = "3600000000000.0"

func kWh() string {
	return " |> map(fn: (r) => ({r with _value: float(v: r._value) / " + microjoulesPerKWh + "}))\n"
}

// total sums everything.
func total() string { return " |> group()\n |> sum()\n" }

// power is the power of a measurement, summed over its meters.
func power(measurement, tag string) string {
	return from(measurement, "power_w") + where("node") + windows("mean") + sumBy(tag)
}

// perJob has a row for each point of each job, with its id and another field. Only raw points separate jobs.
func perJob(field string) string { return rows("raw", "job_id", field) }

// rows has the fields of each point of jobs in one row.
func rows(stage string, fields ...string) string {
	return fmt.Sprintf("from(bucket: \"${database}/%s\")\n", stage) + inTime +
		` |> filter(fn: (r) => r._measurement == "job_energy" and (r._field == "` + strings.Join(fields, `" or r._field == "`) + `"))
` + pivoted
}

// coverage is the measured part of the time of all rows. Ratios of single points must not be averaged: a point after a
// gap stands for more time than others.
func coverage() string {
	return ` |> group()
 |> reduce(identity: {measured: 0.0, expected: 0.0}, fn: (r, accumulator) => ` +
		`({measured: accumulator.measured + r.measured_s, expected: accumulator.expected + r.expected_s}))
 |> map(fn: (r) => ({_value: r.measured / r.expected}))
`
}

func ofJob() string { return " |> filter(fn: (r) => r.job_id == \"${job}\")\n" }

func jobEvents() string {
	return `from(bucket: "${database}/raw")
` + inTime + ` |> filter(fn: (r) => r._measurement == "job_event" and r._field == "text")
 |> group()
 |> map(fn: (r) => ({_time: r._time, text: r._value, tags: r.fact}))
 |> sort(columns: ["_time"])
`
}

// monthly sums a field of jobs by a tag and by calendar month (UTC).
func monthly(field, tag, scale string) string {
	month := "string(v: date.year(t: r._time) * 100 + date.month(t: r._time))"
	return "import \"date\"\n" + from("job_energy", field) + where("user") + where("tenant") +
		fmt.Sprintf(" |> map(fn: (r) => ({%s: r.%s, month: %s, _value: float(v: r._value) / %s}))\n", tag, tag, month, scale) +
		fmt.Sprintf(` |> group(columns: ["month", %q])
 |> sum()
 |> group()
 |> sort(columns: ["month", %q])
`, tag, tag)
}

// choices returns the values of a tag.
func choices(measurement, field, tag string) string {
	return from(measurement, field) + fmt.Sprintf(` |> group(columns: [%q])
 |> first()
 |> group()
 |> distinct(column: %q)
`, tag, tag)
}

// age returns the seconds since the newest point of each node.
func age() string {
	return fromStage("raw", "component_energy", "measured_uj") + where("node") + ` |> group(columns: ["node"])
 |> sort(columns: ["_time"])
 |> last()
 |> map(fn: (r) => ({node: r.node, _time: r._time, _value: float(v: int(v: now()) - int(v: r._time)) / 1000000000.0}))
`
}
