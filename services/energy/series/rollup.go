package series

import "time"

// The names of the stages of the series: raw, by the minute, by the hour. Together with the database's name they name a
// retention policy of InfluxDB 1.8 (database "switchyard", policy "raw") and a bucket of InfluxDB 2 ("switchyard/raw").
const (
	Raw    = "raw"
	Minute = "1m"
	Hour   = "1h"
)

// Stage is one level of downsampling.
type Stage struct {
	Name string
	Keep time.Duration
	// From is the stage that this one is computed from, Every the length of its windows. Back is how far back windows
	// are recomputed each time: further than the stream of measurements reaches, so that late points count.
	From  string
	Every time.Duration
	Back  time.Duration
}

// Stages returns the table of stages, each after its source.
func Stages() []Stage {
	const day = 24 * time.Hour
	return []Stage{
		{Name: Raw, Keep: 7 * day},
		{Name: Minute, Keep: 90 * day, From: Raw, Every: time.Minute, Back: 90 * time.Minute},
		{Name: Hour, Keep: 2 * 365 * day, From: Minute, Every: time.Hour, Back: 3 * time.Hour},
	}
}

// Thinned is the downsampling of one field.
type Thinned struct {
	// Function of the window's values: sum, mean, max or last.
	Function string
	Field    string
	// As is the field's name in every stage but raw.
	As string
}

// Rollup is the downsampling of a measurement.
type Rollup struct {
	Measurement string
	// Tags are the tags that remain; empty means all.
	Tags   []string
	Fields []Thinned
}

// Rollups returns the table of downsampled measurements. Counters keep the last value, so that differences are exact at
// any stage; power keeps the mean and the largest mean of a second; additive values are summed, except for windows of
// links, which overlap. Jobs are not separated beyond raw: the ledger has their accounts.
func Rollups() []Rollup {
	last := func(f string) Thinned { return Thinned{"last", f, f} }
	mean := func(f string) Thinned { return Thinned{"mean", f, f} }
	sum := func(f string) Thinned { return Thinned{"sum", f, f} }
	peak := func(f string) Thinned { return Thinned{"max", f, f} }
	most := Thinned{"max", "power_w", "power_max_w"}
	return []Rollup{
		{GPUPower, nil, []Thinned{last("energy_uj"), mean("power_w"), most, mean("sm_util_ratio"), last("limit_w"), last("memory_used_bytes"), peak("temperature_c")}},
		{CPUEnergy, nil, []Thinned{last("energy_uj"), mean("power_w"), most}},
		{NodePower, nil, []Thinned{last("energy_uj"), mean("power_w"), most}},
		{ComponentEnergy, nil, []Thinned{sum("measured_uj"), sum("attributed_uj"), sum("idle_uj"), sum("unattributed_uj")}},
		{JobEnergy, []string{"tenant", "user", "component", "device_model", "method", "node"}, []Thinned{sum("active_uj"), sum("idle_uj"), sum("cost"), sum("co2e_g"), sum("measured_s"), sum("expected_s")}},
		{NetProbes, nil, []Thinned{sum("sent"), sum("answered"), sum("received"), sum("late_flows"), mean("rtt_s")}},
		{NetLink, nil, []Thinned{mean("sent"), mean("lost"), peak("loss_ratio"), peak("delay_s"), peak("degraded"), mean("rtt_s"), peak("rtt_high_s")}},
		{Grid, nil, []Thinned{mean("gco2_kwh"), mean("price_kwh")}},
	}
}

// Source returns the field that a stage reads for t.
func (s Stage) Source(t Thinned) string {
	if s.From == Raw {
		return t.Field
	}
	return t.As
}
